"""Bounds what requests with unknown tokens cost the API server, and how long users wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

_AT_ONCE = 8
_AT_ONCE_OF_ADDRESS = 4
_MOST_OF_ADDRESS = 16
"""Those that are signing in and those that wait; behind a proxy all users have one address."""
_TURN_SECONDS = 2.0
_REFUSED_SECONDS = 10.0
"""How long a refused token is refused without asking the API server again."""
_MOST_REFUSED = 1024


@dataclass
class _Address:
    """The clients at one address that are signing in, or wait for it."""

    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE_OF_ADDRESS))
    count: int = 0


class SignIns:
    """Lets tokens that nobody knows yet reach the API server in turns."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._addresses: dict[str, _Address] = {}
        self._refused: dict[bytes, float] = {}
        """When a refused token is asked about again, by its hash; the oldest first."""

    def is_refused(self, token: bytes) -> bool:
        """Return whether the API server has lately refused the token with this hash."""
        return asyncio.get_running_loop().time() < self._refused.get(token, 0.0)

    def refuse(self, token: bytes) -> None:
        """Refuse the token with this hash for some seconds."""
        self._refused.pop(token, None)
        self._refused[token] = asyncio.get_running_loop().time() + _REFUSED_SECONDS
        if len(self._refused) > _MOST_REFUSED:
            del self._refused[next(iter(self._refused))]

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for a turn, and keep it in the `async with`.

        Raises:
            HTTPTooManyRequests: too many clients wait, or no turn has come in time.
        """
        place = self._addresses.setdefault(address, _Address())
        if place.count >= _MOST_OF_ADDRESS:
            raise _busy()
        place.count += 1
        try:
            try:
                async with asyncio.timeout(_TURN_SECONDS):
                    await place.slots.acquire()
                    try:
                        await self._slots.acquire()
                    except asyncio.CancelledError:
                        place.slots.release()
                        raise
            except TimeoutError:
                raise _busy() from None
            try:
                yield
            finally:
                self._slots.release()
                place.slots.release()
        finally:
            place.count -= 1
            if not place.count:
                del self._addresses[address]


def _busy() -> web.HTTPTooManyRequests:
    text = f"too many users are signing in; try again in {_TURN_SECONDS:.0f} s\n"
    return web.HTTPTooManyRequests(text=text, headers={"Retry-After": f"{_TURN_SECONDS:.0f}"})
