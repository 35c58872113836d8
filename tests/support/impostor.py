"""Plays a job whose master is another user's server, which answers as it likes."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web
from elasticjob_api import names
from elasticjob_client.cluster import Cluster

from tests.support.played_api import PlayedApi
from tests.support.self_signed import self_signed

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
    status = {
        "phase": "Running",
        "masterAddress": f"{address}:{names.GRPC_PORT}",
        "master": {"incarnations": 2},
        "replicaStatuses": {"worker": {"desired": 2, "highestIndex": 1, "incarnations": 1}},
    }
    job = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {"framework": "custom", "replicaSpecs": {"worker": {"template": {}}}},
        "status": status,
    }
    answers = {
        "GET elasticjobs": {"items": [job]},
        "GET elasticjobs/a": job,
        "GET configmaps/a-query": {"data": {"token": "t", "ca.crt": authority}},
        "GET pods": {"metadata": {"resourceVersion": "1"}, "items": list(pods)},
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
    pair = self_signed(names.TLS_SERVER_NAME)
    file = folder / "impostor.pem"
    file.write_bytes(pair.certificate_pem + pair.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)
    made = Impostor(pair.certificate_pem.decode())

    async def answer(_: web.Request) -> web.Response:
        headers = {"Content-Security-Policy": "default-src *", "Set-Cookie": "a=b"}
        return web.Response(body=made.body, content_type="text/html", headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, address, names.HTTP_PORT, ssl_context=context).start()
    try:
        yield made
    finally:
        await runner.cleanup()
