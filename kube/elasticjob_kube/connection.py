"""Opens the connections to the API server, which notice when their other end has gone."""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401 (the first connection would, when no file may be left)
import io
import logging
import socket
from collections.abc import Callable
from typing import Any

import aiohttp
from aiohttp import AddrInfoType
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from elasticjob_api.transports import abort

from elasticjob_kube.access import Access

log = logging.getLogger(__name__)
KEEP_ALIVE_SECONDS = 75.0
"""How long an idle connection is kept; the API server closes it after 90. A new connection costs
more than a request.
"""
CONNECT_SECONDS = 5.0
"""TCP repeats a lost packet after 1 s and 3 s. A new attempt is better than its next one, after
7 s.
"""
_SOCKET_OPTIONS = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPINTVL": 3,
    "TCP_KEEPCNT": 2,
    "TCP_USER_TIMEOUT": 15_000,
}
"""If the other end disappears, a connection breaks after 16 s, whether it is idle or sending. So no
request is sent on a dead connection from the pool.
"""
_CHUNKED_BODY_BYTES = 1024 * 1024
"""A larger body is sent in parts, so that it does not block the event loop."""


class ClosingConnector(aiohttp.TCPConnector):
    """A connector that closes at once the connections that are of no use any more.

    aiohttp closes the connection of an answer that was not read to its end with a TLS handshake in
    the background, so that it stays open, also after its session, until the server answers. It has
    no option for that, and closes idle connections only with all others.
    """

    def _release(
        self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False
    ) -> None:
        if protocol.transport is not None and (should_close or protocol.should_close):
            abort(protocol.transport)
        super()._release(key, protocol, should_close=should_close)

    def close_idle(self) -> None:
        """Close the connections that no request uses."""
        idle = [protocol for waiting in self._conns.values() for protocol, _ in waiting]
        self._conns.clear()
        for protocol in idle:
            if protocol.transport is not None:
                abort(protocol.transport)


def open_http(access: Access) -> aiohttp.ClientSession:
    """Return an HTTP session with the certificates and the proxy of an access."""
    connector = ClosingConnector(
        limit=0,
        ssl=access.context,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        socket_factory=_probed_socket,
    )
    return aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), proxy=access.proxy
    )


def log_broken_connections_briefly() -> None:
    """Let the running event loop log the error of a broken connection without a traceback.

    uvloop reports some, although their requests also get the error.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if "protocol" in context and isinstance(error, (OSError, RuntimeError)):
            log.warning("a connection is broken: %s: %s", context["message"], error)
        else:
            loop.default_exception_handler(context)

    asyncio.get_running_loop().set_exception_handler(handle)


def total_timeout(seconds: float) -> aiohttp.ClientTimeout:
    """Return the time-outs of a request that may take this long in all."""
    return aiohttp.ClientTimeout(total=seconds, sock_connect=min(seconds, CONNECT_SECONDS))


def body_payload(
    data: bytes, before_write: Callable[[], None] | None
) -> bytes | io.BytesIO | aiohttp.BytesPayload:
    """Return a request's body as aiohttp shall send it.

    `before_write` is called when the connection is open, just before the first byte is sent.
    """
    if before_write is not None:
        return _Guarded(data, before_write)
    if len(data) > _CHUNKED_BODY_BYTES:
        return io.BytesIO(data)
    return data


class _Guarded(aiohttp.BytesPayload):
    """A body that calls `before_write` just before its first byte is sent."""

    def __init__(self, data: bytes, before_write: Callable[[], None]) -> None:
        super().__init__(data)
        self._before_write = before_write

    async def write_with_length(
        self, writer: AbstractStreamWriter, content_length: int | None
    ) -> None:
        """Send the body; an error of `before_write` ends the request."""
        self._before_write()
        await super().write_with_length(writer, content_length)


def _probed_socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _SOCKET_OPTIONS.items():
        if hasattr(
            socket, name
        ):  # TCP_USER_TIMEOUT exists on Linux only; the CLI runs elsewhere too
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
