"""The connections of programs that run for long, by aiohttp."""

from __future__ import annotations

import asyncio
import encodings.idna  # noqa: F401 (the first connection would, when no file may be left)
import io
import logging
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import AddrInfoType
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from elasticjob_api.transports import abort

from elasticjob_kube.access import Access
from elasticjob_kube.transport import (
    CONNECT_SECONDS,
    KEEP_ALIVE_SECONDS,
    MAX_LINE_BYTES,
    probe,
)

log = logging.getLogger(__name__)
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


class AioHttp:
    """Connections by aiohttp, as `transport.Http` describes them."""

    failures: tuple[type[Exception], ...] = (aiohttp.ClientError,)

    def __init__(self, session: aiohttp.ClientSession, connector: ClosingConnector) -> None:
        self._session = session
        self._connector = connector

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
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a request, as `Http.request` says."""
        connect = CONNECT_SECONDS if seconds is None else min(seconds, CONNECT_SECONDS)
        return self._session.request(
            method,
            url,
            params=params,
            headers=headers,
            data=None if body is None else _payload(body, before_write),
            timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=connect),
            read_bufsize=MAX_LINE_BYTES if params.get("watch") else 2**16,
        )

    async def ws_connect(self, url: str, **settings: Any) -> Any:
        """Open a websocket."""
        return await self._session.ws_connect(url, **settings)

    def close_idle(self) -> None:
        """Close the connections that no request uses."""
        self._connector.close_idle()


@asynccontextmanager
async def open_http(access: Access) -> AsyncIterator[AioHttp]:
    """Open connections with the certificates and the proxy of an access."""
    connector = ClosingConnector(
        limit=0,
        ssl=access.context,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        socket_factory=_probed_socket,
    )
    async with aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), proxy=access.proxy
    ) as session:
        yield AioHttp(session, connector)


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


def _payload(
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
    probe(made)
    return made
