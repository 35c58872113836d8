"""The order of requests that wait for a connection.

The server is a real one on the loopback interface.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web
from elasticjob_kube.resources import PODS, SERVICES
from elasticjob_kube.session import Kube, connect

from tests.support.kubeconfig import write_kubeconfig
from tests.support.served_app import served_app


@asynccontextmanager
async def server(asked: list[str], answer: asyncio.Event, directory: Path) -> AsyncIterator[Path]:
    """An API server that records the requests and answers once `answer` is set.

    Yields a kubeconfig.
    """

    async def handle(request: web.Request) -> web.Response:
        asked.append(request.path.rpartition("/")[2])
        await answer.wait()
        return web.json_response({"metadata": {"name": "made"}})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    async with served_app(app) as port:
        yield write_kubeconfig(directory / "kubeconfig", f"http://127.0.0.1:{port}")
        answer.set()


async def test_requests_of_low_priority_leave_connections_for_others(tmp_path: Path) -> None:
    asked: list[str] = []
    answer = asyncio.Event()
    async with (
        server(asked, answer, tmp_path) as kubeconfig,
        connect(user_agent="test", kubeconfig=kubeconfig, connections=4) as kube,
    ):

        async def create(session: Kube, kind: str) -> None:
            await session.create(
                SERVICES if kind == "services" else PODS, "ns", {"metadata": {"name": "made"}}
            )

        waiting = [asyncio.create_task(create(kube.low_priority(), "services")) for _ in range(8)]
        urgent = [asyncio.create_task(create(kube, "pods")) for _ in range(3)]
        async with asyncio.timeout(30):
            while len(asked) < 4:
                await asyncio.sleep(0.01)
        assert sorted(asked) == ["pods", "pods", "pods", "services"]
        answer.set()
        await asyncio.gather(*waiting, *urgent)
    assert len(asked) == 11
