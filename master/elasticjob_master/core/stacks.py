"""The stacks of the training processes: collects the answers of the agents, and groups equal ones.

What an agent sends is bounded here: 10,000 members may answer, and each answer may be of a program
that wants to fill the master's memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

MOST_THREADS = 8
MOST_FRAMES = 64
LONGEST_TEXT = 500
MOST_CHARACTERS = 1 << 20
"""Of all stacks of a collection. Equal ones count once."""


@dataclass(frozen=True)
class Stack:
    """What a process executes. Two are equal if their main threads are.

    Attributes:
        frames: those of the main thread as `function (file:line)`, the innermost one first.
        problem: why there are none, or what is unusual about the process.
        others: name and frames of each other thread.
    """

    frames: tuple[str, ...] = ()
    problem: str = ""
    others: tuple[str, ...] = field(default=(), compare=False)


Group = tuple[Stack, tuple[int, ...]]
"""A stack and the ranks that have it."""

_TOO_MANY = Stack(problem="left out: the stacks of the job are too many different ones")
_SILENT = Stack(problem="its agent has not answered in time")
_NOT_SENT = Stack(problem="its agent has sent no stack of it")


def bounded(frames: Iterable[str], others: Iterable[str], problem: str) -> Stack:
    """Return a stack of what an agent has sent, within the bounds, and fit for a terminal."""
    kept = tuple(map(_shown, islice(frames, MOST_FRAMES)))
    return Stack(kept, _shown(problem), tuple(map(_shown, islice(others, MOST_THREADS))))


def _shown(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text[:LONGEST_TEXT])


@dataclass
class Collection:
    """The answers to one request.

    Attributes:
        ranks: the ranks of the asked members, by their pods' UIDs.
        until: when it ends without the answers that are missing.
    """

    number: int
    round: int
    ranks: Mapping[str, range]
    until: float
    _answered: set[str] = field(default_factory=set)
    _stacks: dict[Stack, list[int]] = field(default_factory=dict)
    _room: int = MOST_CHARACTERS

    def answer(self, uid: str, number: int, processes: Mapping[int, Stack]) -> None:
        """Record a member's answer: stacks by local rank. Only the first one counts."""
        if number == self.number and uid in self.ranks and uid not in self._answered:
            self._answered.add(uid)
            for local_rank, rank in enumerate(self.ranks[uid]):
                self._add(processes.get(local_rank, _NOT_SENT), rank)

    def is_over(self, now: float) -> bool:
        """Return whether no more answers are awaited."""
        return len(self._answered) == len(self.ranks) or now >= self.until

    def groups(self) -> list[Group]:
        """Return the stacks with their ranks, the largest group first."""
        found = [(stack, tuple(sorted(ranks))) for stack, ranks in self._stacks.items()]
        silent = [ranks for uid, ranks in self.ranks.items() if uid not in self._answered]
        if silent:
            found.append((_SILENT, tuple(sorted(rank for ranks in silent for rank in ranks))))
        return sorted(found, key=lambda group: (-len(group[1]), group[1]))

    def _add(self, stack: Stack, rank: int) -> None:
        if stack not in self._stacks:
            size = sum(len(text) + 50 for text in (*stack.frames, *stack.others))
            if size > self._room:
                stack = _TOO_MANY
            else:
                self._room -= size
        self._stacks.setdefault(stack, []).append(rank)
