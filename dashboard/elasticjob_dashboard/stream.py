"""The stream that keeps an open page current: one answer that lasts, with a line for each change.

A line is a JSON object of the sections of the page's data that differ from those sent before; the
first line has all. An empty line says that the server is still there. The page connects again when
the stream ends, and reads the data as a whole when there are too many streams. Each stream holds
one connection and at most one unsent line: a reader that does not read is disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from aiohttp import web
from elasticjob_api.transports import abort

from elasticjob_dashboard.data import Sections

_QUIET_LOOKS = 10
"""After this many looks without a change an empty line is sent."""
_SEND_SECONDS = 10.0
_NOTHING: Sections = {}


class Streams:
    """The open streams of a server.

    Args:
        read: returns the page's data now. All streams share what it has returned lately.
        most: the number of streams that may be open.
        seconds: between two looks for changes.
        among: the open streams that count, if several share a server; by default only these.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Sections]],
        *,
        most: int,
        seconds: float,
        among: set[asyncio.Transport] | None = None,
    ) -> None:
        self._read = read
        self._most = most
        self._seconds = seconds
        self._open: set[asyncio.Transport] = set()
        self._counted = self._open if among is None else among
        self._ended = asyncio.Event()
        self._reading = asyncio.Lock()
        self._read_at: float | None = None
        self._latest = _NOTHING

    async def serve(self, request: web.Request, headers: Mapping[str, str]) -> web.StreamResponse:
        """Answer a request with a stream; 503 if there are too many."""
        transport = request.transport
        if transport is None or len(self._counted) >= self._most:
            text = f"{self._most} streams are open, which is the most; read the data as a whole\n"
            return web.Response(status=503, text=text, headers=headers)
        self._open.add(transport)
        self._counted.add(transport)
        try:
            response = web.StreamResponse(headers=headers)
            response.content_type = "application/x-ndjson"
            with suppress(ConnectionError, TimeoutError):
                await self._send_all(request, response)
            return response
        finally:
            self._open.discard(transport)
            self._counted.discard(transport)
            if not self._open:  # nobody reads what may be many bytes
                self._latest = _NOTHING
                self._read_at = None
            abort(transport)  # what its reader has not taken is not sent

    @property
    def is_read(self) -> bool:
        """Whether a stream is open."""
        return bool(self._open)

    def end(self) -> None:
        """End all streams at once, also those whose readers do not read."""
        self._ended.set()
        for transport in self._open:
            abort(transport)

    async def _send_all(self, request: web.Request, response: web.StreamResponse) -> None:
        await response.prepare(request)
        sent = _NOTHING
        quiet = 0
        while not self._ended.is_set():
            sections = await self._sections()
            line = changes(sent, sections)
            quiet = 0 if line else quiet + 1
            if line or quiet % _QUIET_LOOKS == 0:
                async with asyncio.timeout(_SEND_SECONDS):
                    await response.write(line + b"\n")
            sent = sections
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), self._seconds)

    async def _sections(self) -> Sections:
        now = asyncio.get_running_loop().time
        async with self._reading:
            if self._read_at is None or now() >= self._read_at + self._seconds / 2:
                self._latest = await self._read()
                self._read_at = now()
            return self._latest


def changes(sent: Sections, now: Sections) -> bytes:
    """Return a JSON object of the sections that were not sent yet; empty: there are none."""
    new = [b'"%b":%b' % (name.encode(), now[name]) for name in now if sent.get(name) != now[name]]
    return b"{%b}" % b",".join(new) if new else b""
