"""Waits for conditions that can only be polled: `until` in coroutines, `wait_until` elsewhere.

Both need a description, a function `look`, and one that says whether its result suffices. They
return that result. When the time is over, the test fails with the last result and the text of
`explain`.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")
SECONDS = 60.0
_INTERVAL = 0.03


@overload
async def until(
    what: str,
    look: Callable[[], Awaitable[T]],
    holds: Callable[[T], object] = bool,
    *,
    seconds: float = SECONDS,
    explain: Callable[[], str] = str,
) -> T: ...


@overload
async def until(
    what: str,
    look: Callable[[], T],
    holds: Callable[[T], object] = bool,
    *,
    seconds: float = SECONDS,
    explain: Callable[[], str] = str,
) -> T: ...


async def until(
    what: str,
    look: Callable[[], Any],
    holds: Callable[[Any], object] = bool,
    *,
    seconds: float = SECONDS,
    explain: Callable[[], str] = str,
) -> Any:
    """Wait until the result of `look`, awaited if necessary, meets the condition.

    The default condition is that the result is true.
    """
    last: Any = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                found = look()
                last = await found if inspect.isawaitable(found) else found
                if holds(last):
                    return last
                await asyncio.sleep(_INTERVAL)
    except TimeoutError:
        raise AssertionError(_failure(what, seconds, last, explain)) from None


def wait_until(
    what: str,
    look: Callable[[], T],
    holds: Callable[[T], object] = bool,
    *,
    seconds: float = SECONDS,
    explain: Callable[[], str] = str,
) -> T:
    """Wait until the result of `look` holds; by default, until it is true."""
    deadline = time.monotonic() + seconds
    while not holds(last := look()):
        if time.monotonic() > deadline:
            raise AssertionError(_failure(what, seconds, last, explain))
        time.sleep(_INTERVAL)
    return last


def _failure(what: str, seconds: float, last: object, explain: Callable[[], str]) -> str:
    return f"not within {seconds:g} s: {what}; last: {last!r}\n{explain()}"
