"""Plays an API server with fixed answers, for tests of the client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from elasticjob_client.access import Access
from elasticjob_client.cluster import Cluster, open_cluster

from tests.support.kubeconfig import write_kubeconfig


@dataclass
class PlayedApi:
    """An API server that answers a request by the end of its path.

    Attributes:
        answers: the answers by method and end of the path (`GET elasticjobs/a`); else 404.
        requests: the requests that were received, in the same form.
        queries: the query of each request, such as `labelSelector=team=a`.
        bodies: the bodies of the requests that had one.
    """

    answers: Mapping[str, Any]
    requests: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    @asynccontextmanager
    async def cluster(self, folder: Path) -> AsyncIterator[Cluster]:
        """Serve, and open a session of the client in namespace `ns`."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            access = Access(write_kubeconfig(folder / "kubeconfig", url), namespace="ns")
            async with open_cluster(access) as cluster:
                yield cluster
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        called = f"{request.method} {request.path.partition('/ns/')[2]}"
        self.requests.append(called)
        self.queries.append(request.query_string)
        if body := await request.read():
            self.bodies.append(body)
        if called in self.answers:
            found = self.answers[called]
            return web.Response(text=found) if isinstance(found, str) else web.json_response(found)
        return web.json_response({"reason": "NotFound", "message": "not found"}, status=404)
