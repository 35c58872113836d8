"""A value that many follow: each follower gets the newest value, and a slow one delays no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Broadcast(Generic[T]):
    """The present value, and a way to follow it."""

    def __init__(self, value: T) -> None:
        self.value = value
        self._next: asyncio.Event = asyncio.Event()

    def publish(self, value: T) -> None:
        """Replace the value and wake its followers."""
        self.value = value
        self._next.set()
        self._next = asyncio.Event()

    async def follow(self) -> AsyncIterator[T]:
        """Yield the present value, then every newer one; values in between may be skipped."""
        while True:
            newer = self._next
            value = self.value
            yield value
            if newer is self._next:
                await newer.wait()
