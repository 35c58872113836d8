"""Plays a job whose master is another user's server, which answers as it likes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from elasticjob_api import names
from elasticjob_client.cluster import Cluster

from tests.support.played_api import PlayedApi, listed, played_job
from tests.support.self_signed import server_context
from tests.support.served_app import served_app

OWNER = {
    "apiVersion": names.API_VERSION,
    "kind": "ElasticJob",
    "name": "a",
    "uid": "u",
    "controller": True,
}


def pod(name: str, role: str, index: str | None = None, **metadata: Any) -> dict[str, Any]:
    labels = {names.LABEL_JOB_UID: "u", names.LABEL_ROLE: role}
    if index is not None:
        labels[names.LABEL_INDEX] = index
    own = {"name": name, "namespace": "ns", "labels": labels, "ownerReferences": [OWNER]}
    return {"metadata": own | metadata, "status": {"phase": "Running"}}


@asynccontextmanager
async def cluster_with(
    folder: Path,
    *,
    address: str = "",
    authority: str = "",
    pods: tuple[dict[str, Any], ...] = (),
    log: str = "",
) -> AsyncIterator[Cluster]:
    """Serve a job whose master has started twice, and whose second member was replaced once.

    Every pod has the same log.
    """
    job = played_job(
        masterAddress=f"{address}:{names.GRPC_PORT}",
        master={"incarnations": 2},
        replicaStatuses={"worker": {"desired": 2, "highestIndex": 1, "incarnations": 1}},
    )
    answers = {
        "GET elasticjobs": listed(job),
        "GET elasticjobs/a": job,
        "GET configmaps/a-query": {"data": {"token": "t", "ca.crt": authority}},
        "GET pods": listed(*pods),
    }
    logs = {f"GET pods/{each['metadata']['name']}/log": log for each in pods}
    async with PlayedApi(answers | logs).cluster(folder) as cluster:
        yield cluster


@dataclass
class Impostor:
    """A server in place of a master.

    Attributes:
        authority: the certificate that it needs.
        body: its answer at every path, as HTML.
    """

    authority: str
    body: bytes = b'{"phase": "<script>alert(1)</script>"}'


@asynccontextmanager
async def impostor(address: str, folder: Path) -> AsyncIterator[Impostor]:
    """Serve at a master's port."""
    certificate, context = server_context(folder, names.TLS_SERVER_NAME)
    made = Impostor(certificate)

    async def answer(_: web.Request) -> web.Response:
        headers = {"Content-Security-Policy": "default-src *", "Set-Cookie": "a=b"}
        return web.Response(body=made.body, content_type="text/html", headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with served_app(app, context, host=address, port=names.HTTP_PORT):
        yield made
