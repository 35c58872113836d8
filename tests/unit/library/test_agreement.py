"""All ranks stop after the same call, without waiting for each other's training."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import elasticjob
import pytest
from elasticjob import AgentError, agreement
from elasticjob._checkpoint_series import CheckpointSeries
from elasticjob.agreement import AnyRank, StopAgreement, StopCounter
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fake_agent import fake_agent

MOST_SKEW = 5
"""The calls that a rank may be ahead of another one, where not every step has a collective."""


class Model:
    """A world of which one rank at a time does one thing.

    Attributes:
        every: a step of this number, and of its multiples, has a collective; 0: none has.
        begun: by rank, the steps that it has begun: the calls so far, or one more.
        published: the limits that the master knows.
    """

    def __init__(self, size: int, every: int) -> None:
        self.ranks = [StopCounter() for _ in range(size)]
        self.every = every
        self.begun = [0] * size
        self.published: dict[int, int] = {}

    def actions(self) -> list[Callable[[], None]]:
        """Return all that can happen next."""
        found: list[Callable[[], None]] = []
        for number, rank in enumerate(self.ranks):
            if rank.limit is None:
                found.append(lambda rank=rank: rank.set_limit() and None)  # type: ignore[misc]
            elif number not in self.published:
                found.append(lambda number=number: self.publish(number))  # type: ignore[misc]
            elif rank.agreed is None and len(self.published) == len(self.ranks):
                found.append(lambda rank=rank: self.learn(rank))  # type: ignore[misc]
            if self.can_train(number):
                found.append(lambda number=number: self.train(number))  # type: ignore[misc]
        return found

    def publish(self, number: int) -> None:
        limit = self.ranks[number].limit
        assert limit is not None
        self.published[number] = limit

    def learn(self, rank: StopCounter) -> None:
        rank.agreed = max(self.published.values())
        assert rank.calls <= rank.agreed, "it has passed the call at which it should stop"

    def can_train(self, number: int) -> bool:
        """Return whether a rank can begin the next step, or end the one that it has begun."""
        rank = self.ranks[number]
        if self.begun[number] == rank.calls:
            ahead = rank.calls - min(each.calls for each in self.ranks)
            return not (rank.must_wait or rank.stops) and ahead < MOST_SKEW
        step = self.begun[number]
        return not self.every or step % self.every != 0 or min(self.begun) >= step

    def train(self, number: int) -> None:
        if self.begun[number] == self.ranks[number].calls:
            self.begun[number] += 1
        else:
            self.ranks[number].calls += 1


def run(model: Model, choices: Sequence[int]) -> set[int]:
    """Let chosen actions happen, then the first ones that can; return the calls at the end."""
    for choice in itertools.chain(choices, itertools.repeat(0)):
        actions = model.actions()
        if not actions:
            break
        actions[choice % len(actions)]()
    assert all(rank.stops for rank in model.ranks), "some wait for good"
    return {rank.calls for rank in model.ranks}


@pytest.mark.guarantee("ranks-stop-together")
@given(st.integers(1, 5), st.integers(0, 3), st.lists(st.integers(0, 59), max_size=300))
def test_all_ranks_stop_after_the_same_call_in_any_order_of_events(
    size: int, every: int, choices: list[int]
) -> None:
    """Ranks are asked at any time, also in a step, publish later and train at unequal speeds."""
    assert len(run(Model(size, every), choices)) == 1


@pytest.mark.guarantee("ranks-stop-together")
@pytest.mark.parametrize("every", [0, 1])
def test_two_ranks_stop_after_the_same_call_in_all_orders_of_their_first_events(every: int) -> None:
    for choices in itertools.product(range(4), repeat=6):
        assert len(run(Model(2, every), choices)) == 1


class World:
    """Threads that train as the ranks of a world, and a stand-in for the master."""

    def __init__(self, size: int, *, collective: bool) -> None:
        self.size = size
        self.stops = [threading.Event() for _ in range(size)]
        self.limits: list[int] = []
        self.calls = [0] * size
        self._all_published = threading.Barrier(size)
        self._lock = threading.Lock()
        self._reduce = threading.Barrier(size) if collective else None
        self._agreements = [StopAgreement(stop, self.highest_limit) for stop in self.stops]

    def highest_limit(self, limit: int) -> int:
        with self._lock:
            self.limits.append(limit)
        self._all_published.wait()
        return max(self.limits)

    def train(self, rank: int) -> None:
        while True:
            if self._reduce is not None:
                self._reduce.wait()
            self.calls[rank] += 1
            if self._agreements[rank].stops():
                return


@pytest.mark.guarantee("ranks-stop-together")
@pytest.mark.parametrize("collective", [True, False], ids=["collective", "no-collective"])
def test_training_threads_that_are_asked_one_after_the_other_stop_together(
    collective: bool,
) -> None:
    world = World(4, collective=collective)
    threads = [threading.Thread(target=world.train, args=(rank,), daemon=True) for rank in range(4)]
    for thread in threads:
        thread.start()
    for stop in world.stops:
        stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), world.calls
    assert set(world.calls) == {max(world.limits)}


@pytest.mark.guarantee("ranks-stop-together")
def test_a_rank_whose_world_has_ended_learns_it_instead_of_waiting() -> None:
    stop = threading.Event()

    def world_has_ended(limit: int) -> int:
        raise AgentError("round is 1; it is over, the present one is 2")

    training = StopAgreement(stop, world_has_ended)
    assert not training.stops()
    stop.set()

    def train() -> None:
        while not training.stops():
            pass

    with pytest.raises(AgentError, match="cannot agree to stop: round is 1; it is over"):
        train()


@pytest.mark.guarantee("ranks-stop-together")
def test_steps_send_no_message_until_a_stop_is_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICJOB_WORLD_SIZE", "2")
    with fake_agent(tmp_path, monkeypatch) as agent:
        for _ in range(1000):
            assert not elasticjob.should_stop_together()
        elasticjob.confirm_stop()
        agent.wait(lambda fake: {"stopping": True} in fake.messages)
        roles = {"id": 1, "call": "roles"}
        assert agent.messages == [roles, {"stoppable": True}, {"stopping": True}]


@pytest.mark.guarantee("ranks-stop-together")
@pytest.mark.parametrize(
    ("roles", "together"), [(["worker"] * 3, True), (["chief", "worker", "worker"], False)]
)
def test_only_processes_that_are_asked_at_the_same_time_can_stop_together(
    roles: list[str], together: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers are asked after the chief has ended, so they agree by a collective."""
    monkeypatch.setenv("ELASTICJOB_WORLD_SIZE", "3")
    monkeypatch.setenv("ELASTICJOB_RANK", "0")
    asked: list[bool] = []

    def any_rank(mine: bool) -> bool:
        asked.append(mine)
        return False

    monkeypatch.setattr(CheckpointSeries, "begin", lambda self, state: "")
    with fake_agent(tmp_path, monkeypatch, roles=roles):
        assert agreement.can_stop_together() == together
        elasticjob.Checkpointer(tmp_path, any_rank=any_rank).step(1, lambda folder: None)
        assert asked == ([] if together else [False])
        if not together:
            with pytest.raises(ValueError, match="has the roles chief, worker, which may be asked"):
                elasticjob.should_stop_together()
            with pytest.raises(ValueError, match="a world of 3 ranks needs it to agree on its"):
                elasticjob.Checkpointer(tmp_path)


def test_a_world_of_one_stops_when_it_is_asked_without_the_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELASTICJOB_WORLD_SIZE", "1")
    with fake_agent(tmp_path, monkeypatch, stop_at=1) as agent:
        assert not elasticjob.should_stop_together()
        elasticjob.report_step(1)
        while not elasticjob.should_stop_together():
            pass
        assert not [message for message in agent.messages if "call" in message]


class Store:
    """The values that ranks, which are threads, share."""

    def __init__(self, size: int) -> None:
        self.values: dict[str, bytes] = {}
        self.meeting = threading.Barrier(size)

    def set(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def get(self, key: str) -> bytes | None:
        return self.values.get(key)

    def compare_and_set(self, key: str, expected: bytes | None, value: bytes) -> bytes | None:
        if self.values.get(key) == expected:
            self.values[key] = value
        return self.values.get(key)


def in_ranks(
    size: int, act: Callable[[int], object], monkeypatch: pytest.MonkeyPatch
) -> list[object]:
    """Let each rank act in a thread, and return their results."""
    store = Store(size)
    monkeypatch.setattr(agreement, "KeyValue", lambda: store)
    monkeypatch.setattr(agreement, "barrier", lambda _name: store.meeting.wait())
    results: list[object] = [None] * size

    def run(rank: int) -> None:
        results[rank] = act(rank)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


@pytest.mark.parametrize("limits", [(7, 7, 7), (3, 9, 5), (100, 9, 5)])
def test_the_highest_limit_is_the_same_for_all(
    limits: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = in_ranks(3, lambda rank: agreement.highest_limit(limits[rank]), monkeypatch)
    assert found == [max(limits)] * 3


def test_ranks_agree_on_each_of_many_values_through_the_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    votes = [[rank == use % 4 for use in range(200)] for rank in range(3)]  # every fourth: none

    def vote(rank: int) -> list[bool]:
        any_rank = AnyRank("votes")
        return [any_rank(mine) for mine in votes[rank]]

    expected = [use % 4 < 3 for use in range(200)]
    assert in_ranks(3, vote, monkeypatch) == [expected] * 3
