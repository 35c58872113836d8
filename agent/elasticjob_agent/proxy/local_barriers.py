"""Where the processes of one member wait for each other, before the master hears that the member is at a barrier."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from elasticjob_agent.proxy.master_call import CallError
from elasticjob_agent.proxy.shards import Caller

MOST_BARRIERS = 1024
"""As many names as the master takes in a round."""


@dataclass
class _Barrier:
    """One barrier's present use, counted from 0, and the local ranks that have reached it."""

    number: int = 0
    arrived: set[int] = field(default_factory=set)
    passed: asyncio.Event = field(default_factory=asyncio.Event)
    over: bool = False


class LocalBarriers:
    """The barriers of the present round, by name."""

    def __init__(self) -> None:
        self._round = 0
        self._barriers: dict[str, _Barrier] = {}

    def begin(self, round_: int) -> None:
        """Begin the world of a round, if it is a later one.

        Those who wait in earlier ones wait no more.
        """
        if round_ <= self._round:
            return
        earlier = self._barriers
        self._round = round_
        self._barriers = {}
        for barrier in earlier.values():
            barrier.over = True
            barrier.passed.set()

    async def arrive(self, name: str, number: int, caller: Caller, seconds: float | None) -> None:
        """Wait until all processes of this member have reached a use of a barrier.

        A repeated arrival is harmless.

        Raises:
            TimeoutError: not all have come within so many seconds; the message says which.
            CallError: there are too many barriers.
        """
        if caller.local_size == 1 or caller.world_round < self._round:
            return  # nobody to wait for; or a world that is over, which the master refuses
        self.begin(caller.world_round)
        if name not in self._barriers and len(self._barriers) >= MOST_BARRIERS:
            raise CallError(
                f"there are {MOST_BARRIERS} barriers already; {name!r} is one too many in this round"
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
                str(rank) for rank in range(caller.local_size) if rank not in barrier.arrived
            ]
            absent = f"{len(missing)} of {caller.local_size} processes of this pod have not come"
            raise TimeoutError(
                f"barrier {name!r}: {absent}, local ranks {', '.join(missing)}"
            ) from None
        if barrier.over:
            raise CallError(
                f"barrier {name!r}: its world is over, the world of round {self._round} has begun"
            )
