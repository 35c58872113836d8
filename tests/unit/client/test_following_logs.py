"""Following logs ends when its reader does; the server is one on the loopback interface."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from elasticjob_api import names
from elasticjob_client.cluster import Access, open_cluster
from elasticjob_client.errors import ClientError
from elasticjob_client.job_logs import job_logs
from elasticjob_client.logs import LogOptions
from elasticjob_client.members import Choice

from tests.support.kubeconfig import write_kubeconfig

LINES = 5000
JOB = {
    "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
    "spec": {"framework": "custom", "replicaSpecs": {"worker": {"template": {}}}},
    "status": {
        "phase": "Running",
        "replicaStatuses": {"worker": {"desired": 1, "highestIndex": 0}},
    },
}
POD = {
    "metadata": {
        "name": "a-worker-0",
        "namespace": "ns",
        "uid": "p",
        "resourceVersion": "1",
        "labels": {names.LABEL_ROLE: "worker", names.LABEL_INDEX: "0"},
        "ownerReferences": [
            {
                "apiVersion": names.API_VERSION,
                "kind": "ElasticJob",
                "name": "a",
                "uid": "u",
                "controller": True,
            }
        ],
    },
    "spec": {"containers": [{"name": "train"}]},
    "status": {
        "phase": "Running",
        "containerStatuses": [{"name": "train", "state": {"running": {}}}],
    },
}


class ApiServer:
    """An API server with a job and its pod, which writes many lines."""

    def __init__(self, *, lists_pods: bool = True) -> None:
        self._lists_pods = lists_pods
        self._ends = asyncio.Event()

    async def __aenter__(self) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def __aexit__(self, *_: object) -> None:
        self._ends.set()
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            await self._ends.wait()
        if request.path.endswith("/log"):
            return web.Response(
                text="".join(f"2026-01-01T00:00:00Z line {each}\n" for each in range(LINES))
            )
        if request.path.endswith("/elasticjobs/a"):
            return web.json_response(JOB)
        if request.path.endswith("/pods"):
            found: dict[str, Any] = {"metadata": {"resourceVersion": "1"}, "items": [POD]}
            return (
                web.json_response(found)
                if self._lists_pods
                else web.json_response({"message": "no"}, status=403)
            )
        return web.json_response({"reason": "NotFound", "message": "not found"}, status=404)


def access(directory: Path, url: str) -> Access:
    """Return access to a server, by a kubeconfig."""
    return Access(write_kubeconfig(directory / "kubeconfig", url), namespace="ns")


async def test_a_reader_that_has_enough_ends_it_although_many_lines_wait(tmp_path: Path) -> None:
    async with ApiServer() as url, open_cluster(access(tmp_path, url)) as cluster:
        followed = job_logs(
            cluster, "a", Choice(every=True), LogOptions(), follow=True, notify=print
        )
        async with asyncio.timeout(30), aclosing(followed) as lines:
            assert (await anext(lines)).text == "line 0"
            for _ in range(
                10
            ):  # turns of the loop, in which as many lines come as there is room for
                await asyncio.sleep(0)


async def test_a_user_without_permission_to_list_pods_gets_one_message(tmp_path: Path) -> None:
    async with ApiServer(lists_pods=False) as url, open_cluster(access(tmp_path, url)) as cluster:
        followed = job_logs(cluster, "a", Choice(), LogOptions(), follow=True, notify=print)
        with pytest.raises(ClientError, match="pods of ns"):
            await anext(followed)
