"""Tests which of several committed states the processes of a new world share."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, cast

from elasticjob._committed_shards import Committed
from elasticjob._committed_state import CommittedState
from elasticjob._connections import Connections
from elasticjob._world_group import Group, Meeting


class State(CommittedState):
    """A state of plain values."""

    def _copy(self, shards: dict[str, Committed]) -> Any:
        return copy.deepcopy(({name: getattr(self, name) for name in self._names}, shards))

    def _load(self, tree: Any) -> dict[str, Committed]:
        values, shards = copy.deepcopy(tree)
        for name, value in values.items():
            setattr(self, name, value)
        return cast("dict[str, Committed]", shards)


@dataclass
class Pair:
    """The group of this process, which is rank 0, and of another one with this state."""

    other: State

    def gather(self, mine: Any) -> list[Any]:
        commit = self.other._committed
        return [mine, (commit.round, commit.number)]

    def broadcast(self, tree: Any, source: int) -> Any:
        return self.other._committed.tree if source == 1 else tree


def synchronize(state: State, other: State, round_: int) -> None:
    """Share a state with another process, as rank 0."""
    meeting = Meeting(round_, 0, 2, frozenset(), cast("Connections", None))
    state._synchronize(meeting, cast("Group", Pair(other)), lambda: None)


def test_a_newer_commit_is_shared_although_the_program_counts_no_steps() -> None:
    first, second = State(value=0), State(value=0)
    for state in (first, second):
        synchronize(state, State(value=0), 1)
    second.value = 1
    second._commit(1, [{}])
    synchronize(first, second, 2)
    assert first.value == 1


def test_a_commit_of_a_later_world_is_shared_whatever_its_step() -> None:
    first, second = State(value=0), State(value=0)
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
    first, second = State(value=0), State(value=0)
    synchronize(second, State(value=0), 1)
    second.value = 5
    second._commit(1, [{}])
    synchronize(first, second, 2)
    assert first.value == 5
