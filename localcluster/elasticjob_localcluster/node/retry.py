"""Asking again for what the API server only just learned.

A node may read the Secrets its pods name and ask for their tokens, but the API server's own caches, which decide that,
follow a pod's binding by some milliseconds. A refusal in that time is not yet an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
_PAUSES = (0.01, 0.03, 0.1, 0.3)


async def patiently(ask: Callable[[], Awaitable[T]], *refusals: type[Exception]) -> T:
    """Ask, and ask again for less than half a second while the answer is one of `refusals`."""
    for pause in _PAUSES:
        try:
            return await ask()
        except refusals:
            await asyncio.sleep(pause)
    return await ask()
