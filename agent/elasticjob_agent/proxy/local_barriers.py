"""Lets the processes of one member wait for each other before the member arrives at a barrier."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from elasticjob_agent.proxy.master_call import CallError
from elasticjob_agent.proxy.shards import Caller

MOST_BARRIERS = 1024
"""The master's bound of names in a round."""


@dataclass
class _Barrier:
    """The present use of a barrier, counted from 0, and the local ranks that have arrived.

    Attributes:
        problem: why the processes do not wait for it any more.
    """

    number: int = 0
    arrived: set[int] = field(default_factory=set)
    passed: asyncio.Event = field(default_factory=asyncio.Event)
    problem: str = ""


class LocalBarriers:
    """The barriers of the present round."""

    def __init__(self) -> None:
        self._round = 0
        self._barriers: dict[str, _Barrier] = {}
        self._ended: set[int] = set()

    def begin(self, round_: int) -> None:
        """Begin the world of a later round, and release the processes that wait in earlier ones."""
        if round_ <= self._round:
            return
        self._round = round_
        self._end_waits(f"its world has ended; the world of round {round_} has begun")

    def begin_processes(self) -> None:
        """Begin with new processes, which have reached no barrier."""
        self._ended = set()
        self._end_waits("its processes have ended")

    def process_ended(self, local_rank: int) -> None:
        """End the waits for a process of this member that has ended."""
        self._ended.add(local_rank)
        for barrier in self._barriers.values():
            if local_rank not in barrier.arrived:
                barrier.problem = _has_ended(local_rank)
                barrier.passed.set()

    def _end_waits(self, problem: str) -> None:
        earlier = self._barriers
        self._barriers = {}
        for barrier in earlier.values():
            barrier.problem = problem
            barrier.passed.set()

    async def arrive(self, name: str, number: int, caller: Caller, seconds: float | None) -> None:
        """Wait until all processes of this member have arrived at a use of a barrier.

        A repeated arrival is harmless.

        Raises:
            TimeoutError: not all have arrived within `seconds`; the message names the missing ones.
            CallError: there are too many barriers, or the world or a missing process has ended.
        """
        if caller.local_size == 1 or caller.world_round < self._round:
            return  # alone, or in a world that has ended, which the master refuses
        self.begin(caller.world_round)
        if name not in self._barriers and len(self._barriers) >= MOST_BARRIERS:
            raise CallError(
                f"this round has {MOST_BARRIERS} barriers, which is the bound; {name!r} is refused"
            )
        barrier = self._barriers.setdefault(name, _Barrier())
        if number < barrier.number:
            return
        barrier.arrived.add(caller.local_rank)
        passed = barrier.passed
        for ended in self._ended - barrier.arrived:
            raise CallError(f"barrier {name!r}: {_has_ended(ended)}")
        if len(barrier.arrived) >= caller.local_size:
            passed.set()
            self._barriers[name] = _Barrier(barrier.number + 1)
        try:
            async with asyncio.timeout(seconds):
                await passed.wait()
        except TimeoutError:
            missing = [
                str(each) for each in range(caller.local_size) if each not in barrier.arrived
            ]
            absent = f"{len(missing)} of {caller.local_size} processes of this pod have not arrived"
            raise TimeoutError(
                f"barrier {name!r}: {absent}, local ranks {', '.join(missing)}"
            ) from None
        if barrier.problem:
            raise CallError(f"barrier {name!r}: {barrier.problem}")


def _has_ended(local_rank: int) -> str:
    return f"the process of local rank {local_rank} of this pod has ended and had not arrived"
