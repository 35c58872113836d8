"""Tests which of several committed states the processes of a new world share."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import elasticjob
import pytest
from elasticjob._committed_state import Committed, CommittedShards, CommittedState, Offer, Stored
from elasticjob._world_group import Connections, Group, Meeting

OF_THE_OTHER = Offer("other", ())


class State(CommittedState):
    """A state of plain values."""

    def _copy(self, shards: dict[str, Committed]) -> Any:
        return copy.deepcopy(({name: getattr(self, name) for name in self._names}, shards))

    def _load(self, tree: Any) -> dict[str, Committed]:
        values, shards = copy.deepcopy(tree)
        for name, value in values.items():
            setattr(self, name, value)
        return cast("dict[str, Committed]", shards)

    def _dump(self) -> bytes:
        return pickle.dumps(self._committed.tree)

    def _parse(self, data: bytes) -> Any:
        return pickle.loads(data)


@dataclass
class Pair:
    """The group of this process, which is rank 0, and of another one with this state."""

    other: State

    def gather(self, mine: Any) -> list[Any]:
        commit = self.other._committed
        return [mine, ((commit.round, commit.number), 1)]

    def broadcast(self, tree: Any, source: int) -> Any:
        return self.other._committed.tree if source == 1 else tree


def nothing() -> None:
    """Find no checkpoint."""


def synchronize(
    state: State, other: State, round_: int, stored: Callable[[], Stored | None] = nothing
) -> None:
    """Share a state with another process, as rank 0."""
    meeting = Meeting(round_, 0, 2, frozenset(), cast("Connections", None))
    state._synchronize(meeting, cast("Group", Pair(other)), stored)


def opened(state: State) -> CommittedShards[elasticjob.Shard]:
    """Open a data set of four shards."""
    return state.open(elasticjob.shards, "numbers", size=4, shard_size=1)


def train(state: State, shards: CommittedShards[elasticjob.Shard], round_: int) -> int:
    """Train a shard, and commit it with another process."""
    shard = shards.take(timeout=60)
    assert shard is not None
    shards.done(shard)
    state._commit(round_, [state._offer(), {}.fromkeys(state._data_sets, OF_THE_OTHER)])
    return shard.id


def rest(shards: CommittedShards[elasticjob.Shard]) -> list[int]:
    """Take all shards that are left."""
    found = []
    while shard := shards.take(timeout=60):
        found.append(shard.id)
        shards.done(shard)
        shards.commit([shards.offer()])
    return sorted(found)


def test_a_newer_commit_is_shared_although_the_program_counts_no_steps() -> None:
    first = State(value=0)
    second = State(value=0)
    for state in (first, second):
        synchronize(state, State(value=0), 1)
    second.value = 1
    second._commit(1, [{}])
    synchronize(first, second, 2)
    assert first.value == 1


def test_a_commit_of_a_later_world_is_shared_whatever_its_step() -> None:
    first = State(value=0)
    second = State(value=0)
    synchronize(first, State(), 1)
    for step in range(1, 9):
        first.step = first.value = step
        first._commit(1, [{}])
    synchronize(second, State(), 2)
    second.step = second.value = 3
    second._commit(2, [{}])
    synchronize(first, second, 3)
    assert (first.step, first.value) == (3, 3)


def test_a_process_that_never_trained_takes_the_state_of_one_that_did() -> None:
    first = State(value=0)
    second = State(value=0)
    synchronize(second, State(value=0), 1)
    second.value = 5
    second._commit(1, [{}])
    synchronize(first, second, 2)
    assert first.value == 5


@pytest.mark.guarantee("pytorch-worlds")
def test_if_all_processes_are_lost_the_data_set_returns_to_the_checkpoint() -> None:
    lost = State()
    shards = opened(lost)
    synchronize(lost, State(), 1)
    in_model = {train(lost, shards, 1) for _ in range(2)}
    # The second one is reported by the next commit only.
    stored = Stored(lost._dump(), {"numbers": shards.inner.checkpoint()})
    train(lost, shards, 1)
    train(lost, shards, 1)
    state = State()
    again = opened(state)
    synchronize(state, State(), 2, lambda: stored)
    assert rest(again) == sorted({0, 1, 2, 3} - in_model)


def test_without_a_checkpoint_the_data_set_begins_again_with_the_model() -> None:
    state = State()
    shards = opened(state)
    shards.inner.done(*(shard for _ in range(2) if (shard := shards.inner.take(timeout=60))))
    assert shards.inner.flush(60)
    assert shards.take(timeout=60) is not None  # before the first world
    synchronize(state, State(), 1)
    assert rest(shards) == [0, 1, 2, 3]


def test_a_data_set_that_the_program_restores_is_refused() -> None:
    with pytest.raises(ValueError, match="restore: the state restores its data sets"):
        State().open(elasticjob.shards, "numbers", size=4, shard_size=1, restore=b"")


def test_what_a_process_has_trained_before_it_returns_to_a_checkpoint_is_trained_once() -> None:
    opened = CommittedShards(elasticjob.shards("returns", size=4, shard_size=1))
    first = opened.take(1)
    assert first is not None
    opened.done(first)
    opened.commit([opened.offer(), OF_THE_OTHER])
    in_model = copy.deepcopy(opened.committed)
    opened.restore(b"", first_round=1)  # of a checkpoint before the report, but with the shard
    opened.return_to(in_model)
    opened.commit([opened.offer(), OF_THE_OTHER])
    following = opened.take(1)
    assert following is not None
    assert (first.id, following.id) == (0, 1)
