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
    """The present use of a barrier, counted from 0, and the local ranks that have arrived."""

    number: int = 0
    arrived: set[int] = field(default_factory=set)
    passed: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False


class LocalBarriers:
    """The barriers of the present round."""

    def __init__(self) -> None:
        self._round = 0
        self._barriers: dict[str, _Barrier] = {}

    def begin(self, round_: int) -> None:
        """Begin the world of a later round, and release the processes that wait in earlier ones."""
        if round_ <= self._round:
            return
        earlier = self._barriers
        self._round = round_
        self._barriers = {}
        for barrier in earlier.values():
            barrier.over = True
            barrier.passed.set()

    async def arrive(self, name: str, number: int, caller: Caller, seconds: float | None) -> None:
        """Wait until all processes of this member have arrived at a use of a barrier.

        A repeated arrival is harmless.

        Raises:
            TimeoutError: not all have arrived within `seconds`; the message names the missing ones.
            CallError: there are too many barriers, or the world has ended.
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
        if barrier.over:
            raise CallError(
                f"barrier {name!r}: its world has ended; the world of round {self._round} has begun"
            )
