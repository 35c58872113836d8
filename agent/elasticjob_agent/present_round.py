"""What the present training processes have been told of worlds and of a stop, and have said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elasticjob_api.v1 import agent_pb2

from elasticjob_agent import training_messages


@dataclass
class PresentRound:
    """The processes that were started together, in the worlds that they join one after the other.

    Attributes:
        number: the round in which they were started.
        world: the world of that round.
        processes: their number in this pod.
        announced: the newest world that was announced to them.
        joined_round: the round of the latest world that all of them have joined since their start;
            0: none.
        stop_requested: they are to stop.
        stop_confirmed: one of them has confirmed that it ends because of a stop.
    """

    number: int = 0
    world: agent_pb2.World = field(default_factory=agent_pb2.World)
    processes: int = 1
    announced: agent_pb2.WorldChanged = field(default_factory=agent_pb2.WorldChanged)
    joined_round: int = 0
    stop_requested: bool = False
    stop_confirmed: bool = False
    _joined_ranks: set[int] = field(default_factory=set)
    _left: dict[int, tuple[int, bool]] = field(default_factory=dict)

    def announce(self, change: agent_pb2.WorldChanged) -> bool:
        """Announce the next world; return False if they know it or a later one."""
        if change.world.round <= max(self.number, self.announced.world.round):
            return False
        self.announced = change
        self._joined_ranks = set()
        return True

    def place(self, local_rank: int) -> dict[str, Any]:
        """Return the place of a process in the announced world."""
        world = self.announced.world
        return {
            "round": world.round,
            "rank": self.announced.rank + local_rank,
            "size": training_messages.world_size(world),
        }

    def join(self, local_rank: int) -> bool:
        """Let a process join the announced world; return whether that makes all of them join it."""
        self._joined_ranks.add(local_rank)
        round_ = self.announced.world.round
        if len(self._joined_ranks) < self.processes or self.joined_round >= round_:
            return False
        self.joined_round = round_
        return True

    def leave(self, local_rank: int, round_: int, *, ends: bool) -> bool | None:
        """Let a process leave a world; return whether all of them end, once all have left it."""
        self._left[local_rank] = (round_, ends)
        left = [each_ends for left_round, each_ends in self._left.values() if left_round == round_]
        return all(left) if len(left) >= self.processes else None
