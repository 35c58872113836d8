"""Data sets and ledgers: shards, their order, and refused requests.

`test_ledger_histories.py` has random histories.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from elasticjob_api.refusals import BadRequest, DeclaredDifferently, NotCurrent, UnknownName
from elasticjob_shards import Dataset, Ledger, Ledgers
from elasticjob_shards.checkpoint import pack, unpack
from elasticjob_shards.dataset import MOST_PARTS
from elasticjob_shards.ledger import MOST_FAILED
from elasticjob_shards.ledgers import MOST_DATASETS, MOST_LEASES
from elasticjob_shards.shuffle import shuffled, unshuffled
from hypothesis import given
from hypothesis import strategies as st

ORDER_OF_SEED_7 = [4, 8, 9, 3, 7, 0, 6, 2, 5, 1]
parts = st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any)


@given(
    st.one_of(st.integers(1, 400), parts),
    st.integers(1, 100),
    st.integers(1, 4),
    st.booleans(),
    st.integers(0, 99),
)
def test_the_shards_of_an_epoch_cover_every_part_once_in_any_order(
    size: int | list[int], shard_size: int, epochs: int, shuffle: bool, seed: int
) -> None:
    sizes = size if isinstance(size, list) else [size]
    several = tuple(size) if isinstance(size, list) else ()
    dataset = Dataset("d", sum(sizes), shard_size, epochs, shuffle, seed, several)
    shards = [dataset.at(position) for position in range(dataset.total)]
    assert [dataset.position(shard.id) for shard in shards] == list(range(dataset.total))
    assert [shard.epoch for shard in shards] == sorted(shard.epoch for shard in shards), (
        "one epoch after the other"
    )
    samples = Counter((s.epoch, s.part, sample) for s in shards for sample in range(s.start, s.end))
    everything = [
        (e, part, n)
        for e in range(epochs)
        for part, length in enumerate(sizes)
        for n in range(length)
    ]
    assert samples == Counter(everything)
    in_order = sorted(shards, key=lambda shard: shard.id)
    assert in_order == sorted(shards, key=lambda shard: (shard.epoch, shard.part, shard.start))


@given(st.integers(1, 2**53), st.data())
def test_a_position_has_one_shard_for_any_number_of_shards(count: int, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, count - 1))
    seed = data.draw(st.integers(0, 2**64 - 1))
    shard = shuffled(position, count, seed, 3)
    assert 0 <= shard < count
    assert unshuffled(shard, count, seed, 3) == position


def test_the_order_is_random_and_differs_by_epoch_and_seed() -> None:
    orders = [
        [shuffled(p, 40, seed, epoch) for p in range(40)]
        for seed in range(50)
        for epoch in range(20)
    ]
    assert len({tuple(order) for order in orders}) == 1000
    places = Counter((place, shard) for order in orders for place, shard in enumerate(order))
    assert len(places) == 1600, "every shard comes at every place"
    assert sum((count - 25) ** 2 / 25 for count in places.values()) == pytest.approx(
        1521, abs=6 * 55
    ), "chi-square"
    follows = sum(b == a + 1 for order in orders for a, b in pairwise(order))
    assert follows == pytest.approx(1000 * 39 / 40, rel=0.2), "neighbours are torn apart"


def test_the_order_never_changes_for_running_jobs() -> None:
    assert [shuffled(p, 10, 7, 0) for p in range(10)] == ORDER_OF_SEED_7


@given(st.sets(st.integers(0, 300)))
def test_runs_unpack_to_the_packed_numbers(numbers: set[int]) -> None:
    assert unpack(pack(numbers), most=300) == sorted(numbers)


@pytest.mark.parametrize("runs", [[1], [0, -1], [-1, 1], [0, 2**60], [5, 2, 0, 9]])
def test_invalid_or_too_many_runs_are_refused(runs: list[int]) -> None:
    with pytest.raises(ValueError, match="not a list of runs with at most 10"):
        unpack(runs, most=10)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Dataset("", 1, 1), "dataset is ''"),
        (Dataset("x" * 64, 1, 1), "it must have 1 to 63"),
        (Dataset("d", 0, 1), "size is 0; it must be between 1"),
        (Dataset("d", 1, 0), "shard_size is 0"),
        (Dataset("d", 1, 1, 0), "epochs is 0"),
        (Dataset("d", 2**53, 1, 2**40), "at most"),
    ],
)
def test_an_invalid_data_set_is_refused(dataset: Dataset, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        Ledgers().declare(dataset)


def test_an_equal_declaration_is_accepted_and_another_one_refused_by_field() -> None:
    ledgers = Ledgers()
    assert ledgers.declare(Dataset("d", 10, 3)) is ledgers.declare(Dataset("d", 10, 3))
    with pytest.raises(DeclaredDifferently, match="shard_size=3 before, and with shard_size=4 now"):
        ledgers.declare(Dataset("d", 10, 4))
    with pytest.raises(DeclaredDifferently, match="0 parts before, and with 2 or others now"):
        ledgers.declare(Dataset("d", 10, 3, parts=(5, 5), parts_digest="x"))
    with pytest.raises(UnknownName, match="CreateDataset"):
        ledgers.get("e")


def test_a_stream_declared_again_has_grown_and_never_shrinks() -> None:
    ledgers = Ledgers()
    ledger = ledgers.declare(Dataset("s", 10, 4, streamed=True))
    assert (ledger.account().total, ledger.dataset.growing) == (2, True)
    assert ledgers.declare(Dataset("s", 13, 4, streamed=True)).account().total == 3
    assert ledgers.declare(Dataset("s", 0, 4, streamed=True)).account().total == 3
    assert [(s.start, s.end) for s in ledger.lease("a", 9)] == [(0, 4), (4, 8), (8, 12)], (
        "full shards only"
    )
    ledger.report("a", [0, 1, 2])
    assert not ledger.finished
    ledger.extend(13, final=True)
    assert [(s.start, s.end) for s in ledger.lease("a", 9)] == [(12, 13)], "the rest at the end"
    ledger.extend(13, final=True)
    ledgers.declare(Dataset("s", 0, 4, streamed=True))
    with pytest.raises(BadRequest, match="size is 14, but s has ended with 13"):
        ledger.extend(14, final=False)
    ledger.report("a", [3])
    assert ledger.finished


def test_a_stream_has_one_epoch_in_order() -> None:
    for wrong in (
        Dataset("s", 0, 4, 2, streamed=True),
        Dataset("s", 0, 4, shuffle=True, streamed=True),
    ):
        with pytest.raises(BadRequest, match="one epoch, no shuffle and no parts"):
            Ledgers().declare(wrong)


def test_a_huge_data_set_needs_no_memory_until_it_is_leased() -> None:
    ledger = Ledger(Dataset("d", 2**50, 1, 3))
    assert [shard.id for shard in ledger.lease("a", 3)] == [0, 1, 2]
    shuffling = Ledger(Dataset("d", 2**50, 1, 3, shuffle=True))
    ids = [shard.id for shard in shuffling.lease("a", 3)]
    assert shuffling.report("a", ids) == []
    assert (shuffling.fresh, shuffling.waiting()) == (3, [])


def test_a_shard_that_was_never_leased_cannot_be_done() -> None:
    ledger = Ledger(Dataset("d", 10, 1))
    ledger.lease("a", 2)
    with pytest.raises(BadRequest, match="shard 5 of d was never leased"):
        ledger.report("a", [0, 5])
    with pytest.raises(BadRequest, match="shard 99 does not exist"):
        ledger.report("a", [0, 99])
    assert ledger.account().done == 0, "a report is taken as a whole or not at all"


@pytest.mark.guarantee("damaged-samples")
def test_failed_shards_are_counted_and_never_handed_out_again() -> None:
    ledger = Ledger(Dataset("d", 4, 1))
    ledger.lease("a", 2)
    ledger.lease("b", 1)
    assert ledger.report("a", [], [], [0, 2]) == [2], "another one's"
    assert ledger.report("a", [], [], [0]) == []
    assert ledger.report("a", [0]) == [], "it has ended"
    ledger.release("a")
    assert [shard.id for shard in ledger.lease("c", 9)] == [1, 3]
    ledger.report("c", [1, 3])
    ledger.report("b", [2])
    account = ledger.account()
    assert (account.done, account.failed, ledger.finished) == (3, 1, True)


@pytest.mark.guarantee("damaged-samples")
def test_too_many_failures_are_refused() -> None:
    ledger = Ledger(Dataset("d", 2 * MOST_FAILED, 1))
    ids = [shard.id for shard in ledger.lease("a", MOST_FAILED + 1)]
    ledger.report("a", [], [], ids[:-1])
    ledger.report("a", [], [], ids[:-1])
    with pytest.raises(
        BadRequest, match=f"failed has 1 shards and {MOST_FAILED} of d have failed before"
    ):
        ledger.report("a", [], [], ids[-1:])


def test_a_round_restores_one_checkpoint_and_reports_of_earlier_processes_do_not_count() -> None:
    ledger = Ledger(Dataset("d", 10, 1))
    ledger.lease("a", 4)
    ledger.report("a", [0, 1], round_=1)
    saved = ledger.checkpoint()
    ledger.report("a", [2, 3], round_=1)
    ledger.lease("a", 2)
    ledger.restore(saved, 2)
    assert (ledger.account().done, ledger.account().leased) == (2, 0)
    assert ledger.report("a", [2, 4], round_=1) == [2, 4], "its effect is not in the model any more"
    assert [shard.id for shard in ledger.lease("b", 2)] == [2, 3]
    ledger.restore(saved, 2)
    assert ledger.account().leased == 2, "a repetition changes nothing"
    for state, round_ in ((b"", 2), (saved, 1)):
        with pytest.raises(NotCurrent, match="round 2 has already restored"):
            ledger.restore(state, round_)
    ledger.restore(b"", 3)
    assert ledger.account().waiting == 10, "back to the beginning"
    ledger.lease("a", 4)
    ledger.restore(saved, 3, only=True)
    assert (ledger.account().done, ledger.account().leased) == (2, 0), (
        "it was started again in its place"
    )


def test_each_world_of_continuing_processes_can_return_to_a_checkpoint_once() -> None:
    ledger = Ledger(Dataset("d", 10, 1))
    ledger.restore(b"", 2, first_round=1)
    ledger.lease("a", 4)
    ledger.report("a", [0, 1], round_=1)
    saved = ledger.checkpoint()
    for world in (3, 4):
        ledger.report("a", [2], round_=1)
        ledger.restore(saved, world, first_round=1)
        assert (ledger.account().done, ledger.account().leased) == (2, 0)
        assert [shard.id for shard in ledger.lease("a", 2)] == [2, 3]
        ledger.restore(saved, world, first_round=1)
        assert ledger.account().leased == 2, "another process of the world"
    with pytest.raises(NotCurrent, match="round is 3, but round 4 has already restored"):
        ledger.restore(saved, 3, first_round=1)
    assert ledger.report("a", [2], round_=1) == [], "its process continues"


def test_a_shard_that_a_master_has_handed_out_without_storing_it_counts_when_it_is_reported() -> (
    None
):
    ledger = Ledger(Dataset("d", 10**6, 1))
    ledger.resume_from(fresh=10, waiting=[3], failed=[])
    assert ledger.report("a", [12]) == []
    account = ledger.account()
    assert (account.done, ledger.waiting()) == (10, [3, 10, 11])
    with pytest.raises(BadRequest, match="shard 900000 of d was never leased"):
        ledger.report("a", [900_000])


@pytest.mark.guarantee("leases-survive-the-master")
def test_a_shard_reported_as_done_is_done_even_if_another_member_has_leased_it() -> None:
    ledger = Ledger(Dataset("d", 4, 1))
    given = ledger.lease(
        "b", 4
    )  # by a master that does not know of the leases of "a", which has trained two of them
    assert ledger.report("a", [0, 1]) == []
    assert ledger.account().done == 2
    ledger.release("b")
    assert [shard.id for shard in ledger.lease("c", 4)] == [2, 3], (
        "what is done is never leased again"
    )
    assert ledger.report("b", [shard.id for shard in given]) == [], (
        "it has trained them as well; each counts once"
    )
    assert (ledger.account().done, ledger.account().leased) == (4, 0)
    assert ledger.finished


def test_requests_beyond_a_limit_are_refused_with_the_limit() -> None:
    with pytest.raises(BadRequest, match="request_id has 65 characters; at most 64"):
        Ledger(Dataset("d", 10, 1)).lease("a", 1, "x" * 65)
    with pytest.raises(BadRequest, match="count is 10001; it must be between 1 and 10000"):
        Ledger(Dataset("d", 10, 1)).lease("a", 10_001)
    ledgers = Ledgers()
    ledgers.declare(Dataset("p", 1, 1, parts=(0,) * (MOST_PARTS - 1) + (1,), parts_digest="x"))
    with pytest.raises(
        BadRequest, match=f"other data sets have {MOST_PARTS}; at most {MOST_PARTS}"
    ):
        ledgers.declare(Dataset("q", 1, 1, parts=(1,), parts_digest="x"))
    for number in range(MOST_DATASETS - 1):
        ledgers.declare(Dataset(f"d{number}", 1, 1))
    with pytest.raises(BadRequest, match=f"there are {MOST_DATASETS} data sets already"):
        ledgers.declare(Dataset("one-more", 1, 1))


def test_all_workers_have_no_more_leases_than_can_be_stored_and_each_gets_its_share() -> None:
    ledgers = Ledgers()
    ledger = ledgers.declare(Dataset("d", 10**9, 1))
    share = ledgers.lease_limit(1000)
    assert 64 < share <= MOST_LEASES // 1000
    for worker in range(1000):
        ledger.lease(str(worker), 10_000, most=share)
    assert ledger.account().leased == 1000 * share
    assert ledger.lease("0", 1, most=share) == []
    ledger.report("0", [0])
    assert len(ledger.lease("0", 5, most=share)) == 1
    assert ledgers.lease_limit(10**6) == 1, "never nothing"
