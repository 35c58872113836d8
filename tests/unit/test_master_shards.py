"""The ledger's account is exact, whoever is lost and whatever is repeated."""

from __future__ import annotations

import pytest
from elasticjob_master.core.shards import BadRequest, Dataset, Differs, Ledger, Ledgers, Unknown
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

WORKERS = ("a", "b", "c")


class Accounts(RuleBasedStateMachine):
    """Workers lease, finish, give back, get lost and repeat themselves; the master restarts with what it stored."""

    @initialize(size=st.integers(1, 40), shard_size=st.integers(1, 7), epochs=st.integers(1, 3))
    def begin(self, size: int, shard_size: int, epochs: int) -> None:
        self.dataset = Dataset("train", size, shard_size, epochs)
        self.ledger = Ledger(self.dataset)
        self.held: dict[str, set[int]] = {worker: set() for worker in WORKERS}
        self.done: set[int] = set()
        self.requests = 0
        self.store()

    def store(self) -> None:
        """What the master promises to have stored when it answers a report."""
        ledger = self.ledger
        self.stored = (
            ledger.fresh,
            ledger.undone(),
            ledger.early(),
            ledger.returned,
            ledger.holders(),
            ledger.answers(),
        )

    @rule(worker=st.sampled_from(WORKERS), count=st.integers(1, 9))
    def lease(self, worker: str, count: int) -> None:
        leased = {shard.id for shard in self.ledger.lease(worker, count)}
        assert leased.isdisjoint(self.done), "what is done is not handed out again"
        self.held[worker] |= leased

    @rule(worker=st.sampled_from(WORKERS), count=st.integers(1, 9), stored=st.booleans(), restarted=st.booleans())
    def lease_again_as_the_answer_got_lost(self, worker: str, count: int, stored: bool, restarted: bool) -> None:
        self.requests += 1
        first = self.ledger.lease(worker, count, f"request {self.requests}")
        if stored:
            self.store()
        if restarted:
            self.restart_the_master()
        again = self.ledger.lease(worker, count, f"request {self.requests}")
        assert again == first or (restarted and not stored)
        self.held[worker] |= {shard.id for shard in again}

    @rule(worker=st.sampled_from(WORKERS), count=st.integers(1, 9))
    def finish(self, worker: str, count: int) -> None:
        done = sorted(self.held[worker])[:count]
        stale = self.ledger.report(worker, done, [])
        self.store()
        self.held[worker] -= set(done)
        self.done |= set(done) - set(stale)
        for shard_id in stale:
            assert any(shard_id in held for held in self.held.values()), "stale means that somebody else has it"

    @rule(worker=st.sampled_from(WORKERS))
    def finish_twice(self, worker: str) -> None:
        done = sorted(self.held[worker])[:1]
        first = self.ledger.report(worker, done, [])
        assert self.ledger.report(worker, done, []) == first
        self.store()
        self.held[worker] -= set(done)
        self.done |= set(done) - set(first)

    @rule(worker=st.sampled_from(WORKERS))
    def give_back(self, worker: str) -> None:
        self.ledger.report(worker, [], self.held[worker])
        self.store()
        self.held[worker] = set()

    @rule(worker=st.sampled_from(WORKERS))
    def lose(self, worker: str) -> None:
        self.ledger.release(worker)  # it may still report later what it had finished

    @rule()
    def restart_the_master(self) -> None:
        fresh, undone, early, returned, leases, answers = self.stored
        self.ledger = Ledger(
            self.dataset,
            fresh=fresh,
            undone=undone,
            early=early,
            returned=returned,
            answers=answers,
            restored=True,
        )
        for worker, ids in leases.items():
            for shard_id in ids:
                self.ledger.restore_lease(worker, shard_id)
        self.store()

    @invariant()
    def the_account_is_exact(self) -> None:
        account = self.ledger.account()
        assert account.done == len(self.done)
        assert account.total == self.dataset.total == account.done + account.leased + account.waiting
        assert self.ledger.finished == (account.done == account.total)

    @invariant()
    def nothing_is_leased_to_a_worker_that_does_not_know_it(self) -> None:
        for worker, ids in self.ledger.holders().items():
            assert self.held[worker].issuperset(ids), "such a shard would keep its epoch from ever ending"

    def teardown(self) -> None:
        for worker in WORKERS:
            self.ledger.release(worker)
        seen = set(self.done)
        while not self.ledger.finished:
            leased = [shard.id for shard in self.ledger.lease("z", 5)]
            assert leased
            assert seen.isdisjoint(leased)
            seen.update(leased)
            assert self.ledger.report("z", leased, []) == []
        assert seen == set(range(self.dataset.total)), "every shard is done exactly once"


TestAccounts = Accounts.TestCase
TestAccounts.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)


@given(st.integers(1, 1000), st.integers(1, 100), st.integers(1, 4))
def test_the_shards_of_an_epoch_cover_the_data_set_once(size: int, shard_size: int, epochs: int) -> None:
    dataset = Dataset("d", size, shard_size, epochs)
    shards = [dataset.shard(shard_id) for shard_id in range(dataset.total)]
    for epoch in range(epochs):
        edges = [(shard.start, shard.end) for shard in shards if shard.epoch == epoch]
        assert [edge[0] for edge in edges] == [0, *[edge[1] for edge in edges[:-1]]]
        assert edges[-1][1] == size


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
def test_a_data_set_that_makes_no_sense_is_refused(dataset: Dataset, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        Ledgers().declare(dataset)


def test_declaring_twice_is_harmless_and_otherwise_refused() -> None:
    ledgers = Ledgers()
    assert ledgers.declare(Dataset("d", 10, 3)) is ledgers.declare(Dataset("d", 10, 3))
    with pytest.raises(Differs, match="shard_size=4"):
        ledgers.declare(Dataset("d", 10, 4))
    with pytest.raises(Unknown, match="CreateDataset"):
        ledgers.get("e")


def test_a_huge_data_set_costs_nothing_until_it_is_leased() -> None:
    ledger = Ledger(Dataset("d", 2**50, 1, 3))
    assert [shard.id for shard in ledger.lease("a", 3)] == [0, 1, 2]
    assert ledger.undone() == [0, 1, 2]


def test_a_shard_that_nobody_was_given_cannot_be_done() -> None:
    ledger = Ledger(Dataset("d", 10, 1))
    with pytest.raises(BadRequest, match="shard 5 of d was never leased"):
        ledger.report("a", [5], [])
    with pytest.raises(BadRequest, match="shard 99 does not exist"):
        ledger.report("a", [99], [])


def test_a_request_with_an_endless_name_is_refused() -> None:
    with pytest.raises(BadRequest, match="request_id has 65 characters; at most 64"):
        Ledger(Dataset("d", 10, 1)).lease("a", 1, "x" * 65)


def test_one_worker_cannot_hold_everything() -> None:
    ledger = Ledger(Dataset("d", 10**6, 1))
    ledger.lease("a", 10_000)
    with pytest.raises(BadRequest, match="10000 shards are leased to a"):
        ledger.lease("a", 1)
