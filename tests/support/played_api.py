"""Plays an API server with fixed answers, for tests of the client."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from elasticjob_api import names
from elasticjob_api.answers import pack
from elasticjob_api.v1 import job_pb2
from elasticjob_client.access import Access
from elasticjob_client.cluster import Cluster, open_cluster

from tests.support.command_line import elasticjob
from tests.support.kubeconfig import write_kubeconfig
from tests.support.served_app import served_app


def listed(*items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a list."""
    return {"metadata": {"resourceVersion": "1"}, "items": list(items)}


NO_REQUESTS = {f"GET {kind}": listed() for kind in ("scaleins", "scaleouts", "scaleplans")}


def played_job(
    phase: str = "Running", *, name: str = "a", spec: Mapping[str, Any] | None = None, **status: Any
) -> dict[str, Any]:
    """Return a small job of namespace `ns`, as an API server answers it."""
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "framework": "custom",
            "replicaSpecs": {"worker": {"template": {}}},
            **(spec or {}),
        },
        "status": {"phase": phase, **status},
    }


def of_job(job: Mapping[str, Any], stored: job_pb2.StoredAnswers | None = None) -> dict[str, Any]:
    """Return the answers about a job named `a`, which may be changed, and what is stored of it."""
    found: dict[str, Any] = {"GET elasticjobs/a": job, "PATCH elasticjobs/a": job}
    if stored is not None:
        packed = base64.b64encode(pack(stored)).decode()
        found["GET configmaps/a-query"] = {"binaryData": {names.REPORT_KEY: packed}}
    return found


@dataclass
class PlayedApi:
    """An API server that answers a request by the end of its path.

    Attributes:
        answers: the answers by method and end of the path (`GET elasticjobs/a`); a number is the
            status of a refusal; else 404. A watch has no events.
        requests: the requests that were received, in the same form.
        queries: the query of each request, such as `labelSelector=team=a`.
        bodies: the bodies of the requests that had one.
    """

    answers: Mapping[str, Any]
    requests: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    _ended: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @asynccontextmanager
    async def cluster(self, folder: Path) -> AsyncIterator[Cluster]:
        """Serve, and open a session of the client in namespace `ns`."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        async with served_app(app) as port:
            file = write_kubeconfig(folder / "kubeconfig", f"http://127.0.0.1:{port}")
            self._ended.clear()
            try:
                async with open_cluster(Access(file, namespace="ns")) as cluster:
                    yield cluster
            finally:
                self._ended.set()

    async def command(self, folder: Path, *arguments: str) -> tuple[int, str, str]:
        """Run a command in namespace `ns`; return exit code, output and errors."""
        async with self.cluster(folder):
            access = (f"--kubeconfig={folder / 'kubeconfig'}", "-n", "ns")
            return await elasticjob(*arguments, *access, folder=folder)

    async def _answer(self, request: web.Request) -> web.Response:
        called = f"{request.method} {request.path.partition('/ns/')[2]}"
        self.requests.append(called)
        self.queries.append(request.query_string)
        if body := await request.read():
            self.bodies.append(body)
        if "watch" in request.query:
            await self._ended.wait()
        missing = {"reason": "NotFound", "message": "not found"}
        match self.answers.get(called):
            case None:
                return web.json_response(missing, status=404)
            case int(status):
                return web.json_response({"message": "no"}, status=status)
            case str(text):
                return web.Response(text=text)
            case found:
                return web.json_response(found)
