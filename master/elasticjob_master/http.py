"""What is asked over HTTPS: Horovod's host list, health, and metrics."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from aiohttp import web
from elasticjob_api import names

from elasticjob_master.config import Config, Tls
from elasticjob_master.controller import Controller
from elasticjob_master.metrics import Metrics
from elasticjob_master.server import authorized


class Http:
    """The HTTP server of one master."""

    def __init__(self, controller: Controller, metrics: Metrics, config: Config) -> None:
        self._controller = controller
        self._metrics = metrics
        self._config = config
        application = web.Application(client_max_size=64 * 1024)
        application.router.add_get("/hosts", self._hosts)
        application.router.add_get("/healthz", self._healthy)
        application.router.add_get("/readyz", self._ready)
        application.router.add_get("/metrics", self._show_metrics)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False)

    async def start(self) -> int:
        """Listen and serve; return the port."""
        await self._runner.setup()
        context = None if self._config.tls is None else _context(self._config.tls)
        site = web.TCPSite(self._runner, self._config.address, self._config.http_port, ssl_context=context)
        await site.start()
        port: int = self._runner.addresses[0][1]
        return port

    async def stop(self) -> None:
        """End."""
        await self._runner.cleanup()

    async def _hosts(self, request: web.Request) -> web.Response:
        if not authorized(request.headers.get(names.TOKEN_METADATA), self._config.token):
            message = f"{names.TOKEN_METADATA} must be 'Bearer <token of this job>'\n"
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"}, text=message)
        return web.Response(text=self._controller.hosts.value.text())

    async def _healthy(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, _request: web.Request) -> web.Response:
        if self._controller.rendezvous.sizes is None:
            return web.Response(status=503, text="the ElasticJob has not been read yet\n")
        return web.Response(text="ok\n")

    async def _show_metrics(self, _request: web.Request) -> web.Response:
        body, content_type = self._metrics.render()
        return web.Response(body=body, headers={"Content-Type": content_type})


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory() as folder:  # the ssl module reads keys from files only
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        certificate.write_bytes(tls.certificate)
        key.touch(mode=0o600)
        key.write_bytes(tls.key)
        context.load_cert_chain(certificate, key)
    return context
