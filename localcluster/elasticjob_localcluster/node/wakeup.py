"""Wakes up a loop after a change, or at the earliest of the requested times."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time


class Wakeup:
    """One loop's wake-up.

    Each pass begins with `reset`, requests its next times with `at`, and ends with `wait`.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._due = math.inf

    def now(self) -> None:
        """Wake the loop at once."""
        self._changed.set()

    def at(self, moment: float) -> None:
        """Wake the loop at the latest at a time in seconds since the epoch; `math.inf`: never."""
        self._due = min(self._due, moment)

    def reset(self) -> None:
        """Forget all requests."""
        self._changed.clear()
        self._due = math.inf

    async def wait(self) -> None:
        """Wait until the loop is to be woken."""
        seconds = None
        if not math.isinf(self._due):
            seconds = max(0.0, self._due - time.time())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
