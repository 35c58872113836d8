"""Serves HTTP so that strangers can use up neither the files of this process nor its memory.

A client is a stranger until it has sent a complete request. aiohttp bounds neither the number of
connections nor the time for a request, so this module accepts the connections itself.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from elasticjob_api.transports import abort
from yarl import URL

from elasticjob_kube import open_files

log = logging.getLogger(__name__)
MOST_CONNECTIONS = 256
FIRST_REQUEST_SECONDS = 10.0
"""The time for the handshake of TLS and the first complete request."""
_IDLE_SECONDS = 120.0
"""How long a connection is kept after a request: longer than the API server keeps one, or it would
lose a question to the webhook that it sends just when the connection is closed.
"""
_SWEEP_SECONDS = 1.0
_BACKLOG = 128
_ACCEPTED_AT_ONCE = 16
_SHUTDOWN_SECONDS = 1.0
"""For the answers that are being sent when the server stops."""
_WRONG_BODIES = (HttpProcessingError, web.RequestPayloadError)
"""What a handler gets that reads a body which is not what its headers say."""
_ERRORS_OF_SENDERS = (*_WRONG_BODIES, ConnectionError)


@dataclass(eq=False)
class _Connection:
    """A client: its socket, when it was accepted or answered, and what it has sent."""

    end: socket.socket
    protocol: web.RequestHandler
    since: float
    is_known: bool = False
    requests: int = 0
    is_closing: bool = False

    def know(self) -> None:
        """Note that a complete request has come."""
        self.is_known = True

    def close(self) -> None:
        """Close the connection at once, also during a handshake."""
        self.is_closing = True
        if self.protocol.transport is not None:
            abort(self.protocol.transport)
        with suppress(OSError):
            self.end.shutdown(socket.SHUT_RDWR)


class GuardedServer:
    """Serves an application at one port.

    Args:
        application: it answers the requests.
        context: TLS; None for none.
        most: the connections at a time. The oldest stranger makes room for another one, then the
            connection that has been idle the longest.
        seconds: the time for the first complete request.
        options: further arguments for `web.AppRunner`.
    """

    def __init__(
        self,
        application: web.Application,
        *,
        context: ssl.SSLContext | None = None,
        most: int = MOST_CONNECTIONS,
        seconds: float = FIRST_REQUEST_SECONDS,
        **options: Any,
    ) -> None:
        self._tls: dict[str, Any] = {}
        if context is not None:
            self._tls = {
                "ssl": context,
                "ssl_handshake_timeout": seconds,
                "ssl_shutdown_timeout": seconds,
            }
        self._most = most
        self._seconds = seconds
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            logger=_log(),
            keepalive_timeout=_IDLE_SECONDS,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            **options,
        )
        self._listening: list[socket.socket] = []
        self._connections: dict[web.RequestHandler, _Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, hosts: Sequence[str | None], port: int) -> int:
        """Listen and serve; return the port.

        Raises:
            OSError, OverflowError: the port cannot be opened.
        """
        await self._runner.setup()
        server = self._runner.server
        assert server is not None
        server.request_factory = _accepting_no_path(server.request_factory)
        self._answer: Any = server.request_handler
        server.request_handler = self._handle
        try:
            for host in hosts:
                listening = _listen(host, port)
                self._listening.append(listening)
                listening.setblocking(False)
                port = listening.getsockname()[1]
        except (OSError, OverflowError):
            await self.stop()
            raise
        for each in self._listening:
            self._accept_from(each)
        self._spawn(self._sweep())
        return port

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        loop = asyncio.get_running_loop()
        for each in self._listening:
            loop.remove_reader(each)
            each.close()
        self._listening = []
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runner.cleanup()

    def _accept_from(self, listening: socket.socket) -> None:
        if listening in self._listening:
            loop = asyncio.get_running_loop()
            loop.add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                end, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("no connection can be accepted: %s", error.strerror)
                self._make_room()
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(_SWEEP_SECONDS, self._accept_from, listening)
                return
            end.setblocking(False)
            if len(list(self._open())) >= self._most and not self._make_room():
                end.close()
                continue
            assert self._runner.server is not None
            protocol = self._runner.server()
            connection = _Connection(end, protocol, asyncio.get_running_loop().time())
            self._connections[protocol] = connection
            self._spawn(self._connect(connection))

    async def _connect(self, connection: _Connection) -> None:
        """Begin to serve a connection, after the handshake of TLS."""
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: connection.protocol, connection.end, **self._tls
            )
        except OSError:  # also of TLS, and its time-out
            connection.end.close()

    def _open(self) -> Iterator[_Connection]:
        """Yield the connections that are neither closed nor being closed."""
        for each in self._connections.values():
            if not each.is_closing and each.end.fileno() >= 0:
                yield each

    def _make_room(self) -> bool:
        """Close the oldest stranger, else the one that is idle the longest; False without one."""
        idle = [each for each in self._open() if not each.requests]
        if not idle:
            return False
        min(idle, key=lambda each: (each.is_known, each.since)).close()
        return True

    async def _sweep(self) -> None:
        """Close strangers whose time is over, and forget closed connections."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, self._seconds / 2))
            late = loop.time() - self._seconds
            for protocol, each in list(self._connections.items()):
                if each.end.fileno() < 0:
                    del self._connections[protocol]
                elif not each.is_known and each.since < late:
                    each.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request; its sender is known as soon as the request is complete."""
        answer: web.StreamResponse
        connection = self._connections.get(request.protocol)
        if connection is None:  # it has just been closed
            answer = await self._answer(request)
            return answer
        request.content.on_eof(connection.know)
        connection.requests += 1
        try:
            answer = await self._answer(request)
            return answer
        except _WRONG_BODIES as error:
            return web.Response(status=400, text=f"the body cannot be read: {error}\n")
        finally:
            connection.requests -= 1
            if connection.is_known:
                connection.since = asyncio.get_running_loop().time()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def healthy(_: web.Request) -> web.Response:
    """Answer a liveness probe: 503 while this process can open no file.

    The probe depends on nothing else, such as the API server: a restart would not help.
    """
    if problem := open_files.problem():
        return web.Response(status=503, text=f"{problem}\n")
    return web.Response(text="ok\n")


def _listen(host: str | None, port: int) -> socket.socket:
    """Return a listening socket at an address, or at all addresses of this host."""
    with suppress(OSError):
        if host is None and socket.has_dualstack_ipv6():
            family = socket.AF_INET6
            return socket.create_server(
                ("", port), family=family, backlog=_BACKLOG, dualstack_ipv6=True
            )
    family = socket.AF_INET6 if ":" in (host or "") else socket.AF_INET
    return socket.create_server((host or "", port), family=family, backlog=_BACKLOG)


def _accepting_no_path(make: Any) -> Any:
    """Return a request factory that accepts CONNECT without a target.

    aiohttp fails on such a request and does not close its connection.
    """

    def request(message: Any, *more: Any) -> Any:
        if message.url is None:
            message = message._replace(url=URL("/"))
        return make(message, *more)

    return request


def _log() -> logging.Logger:
    """Return a logger that drops errors of clients, which could otherwise fill the log."""
    quiet = logging.getLogger(f"{__name__}.requests")
    quiet.addFilter(_is_our_error)
    return quiet


def _is_our_error(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], _ERRORS_OF_SENDERS))
