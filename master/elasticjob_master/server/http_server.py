"""The HTTPS server: Horovod's host list, health, metrics, and the dashboard."""

from __future__ import annotations

import ssl

from aiohttp import web
from aiohttp.typedefs import Handler
from elasticjob_api import names
from elasticjob_api.addresses import host_port
from elasticjob_dashboard.data import Sections, page_data, page_sections
from elasticjob_dashboard.page import Page
from elasticjob_dashboard.stream import Streams
from elasticjob_kube.guarded_server import GuardedServer, healthy
from elasticjob_kube.tls_identity import load_identity

from elasticjob_master.config import Config, Tls
from elasticjob_master.controller import Controller
from elasticjob_master.persistence.state_writer import StateWriter
from elasticjob_master.server.access import Access, Tokens
from elasticjob_master.server.answers import stored_answers
from elasticjob_master.server.grpc_server import CannotListen
from elasticjob_master.server.metrics import Metrics

MOST_STREAMS = 64
"""Open pages; each holds a connection. A page beyond them reads the data as a whole."""
_STREAM_SECONDS = 2.0
"""Between two looks for changes; the members of a large job take some time to list."""
_PROBES = ("/healthz", "/readyz")
_NOT_READY_AFTER_SECONDS = 5.0
"""A single failed write of the state does not make the master unready."""
_NO_STATE_YET = "the stored state has not been read yet\n"


class HttpServer:
    """Serves host list, status, dashboard, probes and metrics of one master."""

    def __init__(
        self, controller: Controller, state_writer: StateWriter, metrics: Metrics, config: Config
    ) -> None:
        self._controller = controller
        self._state_writer = state_writer
        self._serves_job = False
        self._metrics = metrics
        self._config = config
        self._tokens = Tokens(config.token)
        self._page = Page()
        self._streams = Streams(self._sections, most=MOST_STREAMS, seconds=_STREAM_SECONDS)
        application = web.Application(client_max_size=64 * 1024, middlewares=[self._wait_for_state])
        application.router.add_get("/", self._dashboard)
        application.router.add_get("/status", self._status)
        application.router.add_get("/stream", self._stream)
        application.router.add_get("/hosts", self._hosts)
        application.router.add_get("/healthz", healthy)
        application.router.add_get("/readyz", self._ready)
        application.router.add_get("/metrics", self._show_metrics)
        context = None if config.tls is None else _context(config.tls)
        self._server = GuardedServer(application, context=context)

    async def start(self) -> int:
        """Listen and serve; return the port. Raises `CannotListen`."""
        hosts = [self._config.address, *self._config.more_addresses]
        try:
            return await self._server.start(hosts, self._config.http_port)
        except OSError as error:
            at = host_port(self._config.address, self._config.http_port)
            raise CannotListen(f"cannot listen on {at}: {error}") from error

    def serve_job(self) -> None:
        """Answer all requests from now on: the job's state has been read.

        Before that, only the probes are answered.
        """
        self._serves_job = True

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        self._streams.end()
        await self._server.stop()

    @web.middleware
    async def _wait_for_state(self, request: web.Request, handler: Handler) -> web.StreamResponse:
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


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    load_identity(context, tls.certificate, tls.key)
    return context
