"""What a session needs of its HTTP connections, and how they notice that their other end has gone.

There are two: `connection` for programs that run for long, `brief_http` for commands.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

KEEP_ALIVE_SECONDS = 75.0
"""How long an idle connection is kept; the API server closes it after 90. A new connection costs
more than a request.
"""
CONNECT_SECONDS = 5.0
"""TCP repeats a lost packet after 1 s and 3 s. A new attempt is better than its next one, after
7 s.
"""
MAX_LINE_BYTES = 16 * 1024 * 1024
_SOCKET_OPTIONS = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPINTVL": 3,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": 15_000,
}
"""If the other end disappears, a connection breaks after 16 s, whether it is idle or sending. So no
request is sent on a dead connection from the pool.
"""


class Response(Protocol):
    """An answer whose body may still arrive."""

    @property
    def status(self) -> int:
        """The status, such as 200."""

    @property
    def reason(self) -> str | None:
        """The text of the status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; names in any case."""

    @property
    def content(self) -> Any:
        """The body as it arrives: it yields its lines, and its `iter_any` its parts."""

    async def read(self) -> bytes:
        """Return the whole body."""


class Http(Protocol):
    """Connections to one server."""

    failures: tuple[type[Exception], ...]
    """The errors of a request that got no answer, besides OSError and TimeoutError."""

    def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        seconds: float | None,
        body: bytes | None = None,
        before_write: Callable[[], None] | None = None,
    ) -> AbstractAsyncContextManager[Response]:
        """Send a request; its answer is read within the block.

        Args:
            method: the method.
            url: the URL without parameters.
            params: its parameters.
            headers: the headers.
            seconds: the time for the request and its whole answer; None for no bound.
            body: the body.
            before_write: is called when the connection is open, before the first byte of the body.
        """

    async def ws_connect(self, url: str, **settings: Any) -> Any:
        """Open a websocket, as aiohttp does; return aiohttp's."""

    def close_idle(self) -> None:
        """Close the connections that no request uses."""


def probe(opened: socket.socket) -> None:
    """Let a connection break soon after its other end has disappeared."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _SOCKET_OPTIONS.items():
        if hasattr(socket, name):  # TCP_USER_TIMEOUT exists on Linux only; the CLI runs elsewhere
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
