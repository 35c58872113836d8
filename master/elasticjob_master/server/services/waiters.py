"""Lets a bounded number of calls wait for events."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from elasticjob_api.refusals import BadRequest, LimitReached

LONGEST_WAIT_SECONDS = 60.0


def checked_wait(seconds: float) -> float:
    """Return a request's wait_seconds. Raises `BadRequest`."""
    if not 0 < seconds <= LONGEST_WAIT_SECONDS:
        raise BadRequest(
            f"wait_seconds is {seconds:g}; it must be more than 0, at most {LONGEST_WAIT_SECONDS:g}"
        )
    return seconds


class Waiters:
    """The waiting calls of one service. A key identifies the event that a call waits for."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._futures: dict[Hashable, set[asyncio.Future[None]]] = {}
        self._count = 0

    async def wait(self, key: Hashable) -> None:
        """Wait until the key is woken. Raises `LimitReached` if too many calls wait already."""
        if self._count >= self._limit:
            raise LimitReached(f"{self._limit} requests are waiting already")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        futures = self._futures.setdefault(key, set())
        futures.add(future)
        self._count += 1
        try:
            await future
        finally:
            self._count -= 1
            futures.discard(future)
            if not futures and self._futures.get(key) is futures:
                del self._futures[key]

    def wake(self, key: Hashable) -> None:
        """Continue all calls that wait for a key."""
        for future in self._futures.pop(key, ()):
            if not future.done():
                future.set_result(None)

    def wake_all(self) -> None:
        """Continue all calls."""
        for key in list(self._futures):
            self.wake(key)
