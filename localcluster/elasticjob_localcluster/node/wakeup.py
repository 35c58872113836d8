"""Wakes up a loop.

At once when something has changed, or at the earliest of the requested times.
"""

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
        """Wake the loop at this time at the latest.

        In seconds since the epoch, `math.inf` for never.
        """
        self._due = min(self._due, moment)

    def reset(self) -> None:
        """Forget all requests."""
        self._changed.clear()
        self._due = math.inf

    async def wait(self) -> None:
        """Wait until the loop is to be woken."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(
                None if math.isinf(self._due) else max(0.0, self._due - time.time())
            ):
                await self._changed.wait()
