"""The HTTPS server: Horovod's host list, health, metrics, and the dashboard."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler
from elasticjob_api import names
from elasticjob_api.addresses import host_port
from elasticjob_dashboard.data import Sections, page_data, page_sections
from elasticjob_dashboard.page import Page
from elasticjob_dashboard.stream import Streams
from elasticjob_kube.tls_identity import load_identity
from yarl import URL

from elasticjob_master.config import Config, Tls
from elasticjob_master.controller import Controller
from elasticjob_master.core.connection_limits import Peer
from elasticjob_master.persistence.state_writer import StateWriter
from elasticjob_master.server.access import Access, Tokens
from elasticjob_master.server.answers import stored_answers
from elasticjob_master.server.callers import KindOf, normalized
from elasticjob_master.server.grpc_server import CannotListen
from elasticjob_master.server.metrics import Metrics

MOST_CONNECTIONS = 256
MOST_STREAMS = 64
"""Open pages; each holds a connection. A page beyond them reads the data as a whole."""
_STREAM_SECONDS = 2.0
"""Between two looks for changes; the members of a large job take some time to list."""
_HANDSHAKE_SECONDS = 10.0
_PROBES = ("/healthz", "/readyz")
_NOT_READY_AFTER_SECONDS = 5.0
"""A single failed write of the state does not make the master unready."""
_NO_STATE_YET = "the stored state has not been read yet\n"
_ERRORS_OF_SENDERS = (HttpProcessingError, web.RequestPayloadError, ConnectionError)


class HttpServer:
    """Serves host list, status, dashboard, probes and metrics of one master."""

    def __init__(
        self, controller: Controller, state_writer: StateWriter, metrics: Metrics, config: Config
    ) -> None:
        self._controller = controller
        self._state_writer = state_writer
        self._serves_job = False
        self._callers: set[Peer | None] = set()
        self._metrics = metrics
        self._config = config
        self._tokens = Tokens(config.token)
        self._page = Page()
        self._streams = Streams(self._sections, most=MOST_STREAMS, seconds=_STREAM_SECONDS)
        self._listening: asyncio.Server | None = None
        application = web.Application(client_max_size=64 * 1024, middlewares=[self._wait_for_state])
        application.router.add_get("/", self._dashboard)
        application.router.add_get("/status", self._status)
        application.router.add_get("/stream", self._stream)
        application.router.add_get("/hosts", self._hosts)
        application.router.add_get("/healthz", self._healthy)
        application.router.add_get("/readyz", self._ready)
        application.router.add_get("/metrics", self._show_metrics)
        self._runner = web.AppRunner(
            application, access_log=None, handle_signals=False, logger=_log()
        )

    async def start(self) -> int:
        """Listen and serve; return the port. Raises `CannotListen`."""
        await self._runner.setup()
        assert self._runner.server is not None
        self._runner.server.request_factory = _accepting_no_path(
            self._runner.server.request_factory
        )
        tls = self._config.tls
        security: dict[str, Any] = {}
        if tls is not None:
            security = {"ssl": _context(tls), "ssl_handshake_timeout": _HANDSHAKE_SECONDS}
        try:
            self._listening = await asyncio.get_running_loop().create_server(
                self._admit,
                [self._config.address, *self._config.more_addresses],
                self._config.http_port,
                **security,
            )
        except OSError as error:
            at = host_port(self._config.address, self._config.http_port)
            raise CannotListen(f"cannot listen on {at}: {error}") from error
        port: int = self._listening.sockets[0].getsockname()[1]
        return port

    def serve_job(self) -> None:
        """Answer all requests from now on: the job's state has been read.

        Before that, only the probes are answered.
        """
        self._serves_job = True

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._listening is not None:
            self._listening.close()
        self._streams.end()
        await self._runner.cleanup()

    def kinds(self) -> KindOf:
        """Return a function that classifies clients: a caller has sent a request."""
        server = self._runner.server
        connections = [] if server is None else server.connections
        callers = self._callers & {_peer(each.transport) for each in connections}
        self._callers = callers
        return lambda peer: "caller" if peer in callers else "stranger"

    def _admit(self) -> asyncio.Protocol:
        """Serve a new connection, and close the oldest one if there are too many.

        So idle clients cannot keep others out.
        """
        server = self._runner.server
        assert server is not None
        if len(server.connections) >= MOST_CONNECTIONS:
            server.connections[0].force_close()
        return server()

    @web.middleware
    async def _wait_for_state(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._callers.add(_peer(request.transport))
        if not self._serves_job and request.path not in _PROBES:
            return web.Response(status=503, text=_NO_STATE_YET)
        return await handler(request)

    async def _hosts(self, request: web.Request) -> web.Response:
        self._check_token(request)
        hosts = self._controller.hosts.value
        return web.Response(text=hosts.text(addresses="addresses" in request.query))

    async def _dashboard(self, _request: web.Request) -> web.Response:
        return web.Response(
            text=self._page.text, content_type="text/html", headers=self._page.headers
        )

    async def _status(self, request: web.Request) -> web.Response:
        self._check_token(request)
        body = page_data(stored_answers(self._controller, self._config))
        return web.Response(
            body=body, content_type="application/json", headers={"Cache-Control": "no-store"}
        )

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        self._check_token(request)
        return await self._streams.serve(request, {"Cache-Control": "no-store"})

    async def _sections(self) -> Sections:
        return page_sections(stored_answers(self._controller, self._config))

    def _check_token(self, request: web.Request) -> None:
        if self._tokens.access(request.headers.get(names.TOKEN_METADATA)) is Access.NONE:
            message = f"{names.TOKEN_METADATA} must be 'Bearer <token of this job>'\n"
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": "Bearer"}, text=message)

    async def _healthy(self, _request: web.Request) -> web.Response:
        """Answer, which shows that the event loop runs.

        The probe depends on nothing else: without the API server the master still serves its
        agents, and a restart would not help.
        """
        return web.Response(text="ok\n")

    async def _ready(self, _request: web.Request) -> web.Response:
        if (problem := self._not_ready()) is not None:
            return web.Response(status=503, text=problem)
        return web.Response(text="ok\n")

    def _not_ready(self) -> str | None:
        """Return why the master cannot start a world now; None if it can."""
        if not self._serves_job:
            return _NO_STATE_YET
        if self._controller.rendezvous.sizes is None:
            return "the ElasticJob has not been read yet\n"
        failing = self._state_writer.failing_seconds()
        if failing > _NOT_READY_AFTER_SECONDS:
            return f"the state could not be stored for {failing:.0f} s\n"
        return None

    async def _show_metrics(self, _request: web.Request) -> web.Response:
        body, content_type = self._metrics.render()
        return web.Response(body=body, headers={"Content-Type": content_type})


def _peer(transport: asyncio.BaseTransport | None) -> Peer | None:
    """Return the other end of a connection; None if it is closed."""
    name = transport.get_extra_info("peername") if transport is not None else None
    return normalized(*name[:2]) if name else None


def _accepting_no_path(make: Callable[..., Any]) -> Callable[..., Any]:
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
    log = logging.getLogger(f"{__name__}.server")
    log.addFilter(_is_our_error)
    return log


def _is_our_error(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], _ERRORS_OF_SENDERS))


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    load_identity(context, tls.certificate, tls.key)
    return context
