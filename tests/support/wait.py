"""Waits for conditions that can only be polled: `until` in coroutines, `wait_until` elsewhere.

Both need a description, a function `look`, and one that says whether its result suffices. They
return that result. When the time is over, the test fails with the last result and the text of
`explain`. The longer a wait lasts, the longer the pauses between two looks become, because a look
through the API server costs CPU there, too.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")
SECONDS = 60.0
_PAUSES = (0.03, 0.25)
"""The shortest and the longest pause, in seconds."""
_SHARE = 1 / 8
"""A pause in between, as a part of the time waited so far."""


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
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            while True:
                found = look()
                last = await found if inspect.isawaitable(found) else found
                if holds(last):
                    return last
                await asyncio.sleep(_pause(began))
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
    began = time.monotonic()
    while not holds(last := look()):
        if time.monotonic() > began + seconds:
            raise AssertionError(_failure(what, seconds, last, explain))
        time.sleep(_pause(began))
    return last


def _pause(began: float) -> float:
    """Return the seconds until the next look of a wait that began then, on the monotonic clock."""
    shortest, longest = _PAUSES
    return min(longest, max(shortest, _SHARE * (time.monotonic() - began)))


def _failure(what: str, seconds: float, last: object, explain: Callable[[], str]) -> str:
    return f"not within {seconds:g} s: {what}; last: {last!r}\n{explain()}"
