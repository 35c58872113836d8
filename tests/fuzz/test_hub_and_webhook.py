"""Attacks the ports of the hub and of the admission webhook, as anybody in the cluster may."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from elasticjob_api import names
from elasticjob_client.hub import serve_hub
from elasticjob_localcluster.controlplane.ports import free_port
from elasticjob_operator.admission_server import SERVICE, serve_admission
from elasticjob_operator.certificates import new_admission_secrets

from tests.support.fuzz.http_requests import Connect, HttpRequests, hold_halves, send_inputs
from tests.support.grpc_agent import SECONDS
from tests.support.kubeconfig import access_of_nobody
from tests.support.operator_process import job
from tests.support.played_api import PlayedApi
from tests.support.self_signed import write_pair
from tests.support.wait import until

USER = "a-users-token"
DEEP = b"[" * 200_000
TINY = b'{"items":[' + b",".join([b"{}"] * 100_000) + b"]}"
SLOW_READERS = 40


class _ApiOfHostileTenants(PlayedApi):
    """An API server that knows one user, whose jobs are readable, deep, or of many parts."""

    async def _answer(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {USER}":
            return web.json_response({"message": "who is this?"}, status=401)
        if request.method == "POST":
            return web.json_response({"status": {"allowed": True}})
        if not request.path.endswith("elasticjobs"):
            return web.json_response({"metadata": {}, "items": []})
        good = job("good")
        good["metadata"]["namespace"] = "ns"
        deep = json.dumps(job("deep")).encode().replace(b'"jax"', DEEP + b"]" * 200_000)
        items = b",".join((json.dumps(good).encode(), deep, TINY, b'{"spec": 1}'))
        return web.Response(
            body=b'{"metadata":{},"items":[%b]}' % items, content_type="application/json"
        )


@asynccontextmanager
async def hub(folder: Path) -> AsyncIterator[int]:
    write_pair(folder, "hub")
    async with _ApiOfHostileTenants({}).cluster(folder) as cluster:
        access = access_of_nobody(cluster.kube.host)
        async with serve_hub(access, folder, namespaces=["ns"], host="127.0.0.1") as url:
            yield int(url.rstrip("/").rpartition(":")[2])


@asynccontextmanager
async def webhook(folder: Path, token: bytes) -> AsyncIterator[int]:
    secrets = {**new_admission_secrets(SERVICE, "ns", 1.8e9), names.SECRET_TOKEN: token}
    data = {key: base64.b64encode(value).decode() for key, value in secrets.items()}
    kept = {"metadata": {"resourceVersion": "1"}, "data": data}
    answers = {f"GET secrets/{SERVICE}": kept, "GET ": {"webhooks": []}}
    port = free_port()
    config = SimpleNamespace(
        admission_port=port, admission_configuration="webhook", lease_namespace="ns"
    )
    async with (
        PlayedApi(answers).cluster(folder) as cluster,
        serve_admission(cluster.kube, cast(Any, config)),
    ):
        yield port


def connecting(port: int) -> Connect:
    context = ssl._create_unverified_context()
    return partial(asyncio.open_connection, "127.0.0.1", port, ssl=context)


async def is_open(connect: Connect) -> bool:
    try:
        _, writer = await connect()
    except OSError:
        return False
    writer.transport.abort()
    return True


async def asked(connect: Connect, line: str, *headers: str, body: bytes = b"") -> bytes:
    """Return the answer to a right request."""
    text = "\r\n".join((f"{line} HTTP/1.1", "Host: a", "Connection: close", *headers, "", ""))
    async with asyncio.timeout(SECONDS):
        reader, writer = await connect()
        writer.write(text.encode() + body)
        answer = await reader.read()
        writer.transport.abort()
    return answer


async def check_survival(
    connect: Connect,
    requests: HttpRequests,
    inputs: int,
    serves: Any,
    log: pytest.LogCaptureFixture,
) -> None:
    """Send inputs, hold halves of others, read no answers; meanwhile a right request is served."""
    answers: Counter[str] = Counter()
    with log.at_level(logging.WARNING):
        await send_inputs(connect, requests, inputs, answers)
        await serves()
        held = await hold_halves(connect, requests)
        await serves()
        for writer in held:
            writer.transport.abort()
    print(dict(answers))
    assert not {code for code in answers if code.startswith("5")} - {"501", "503", "505"}, answers
    odd = [record for record in log.records if record.exc_info or record.levelname == "ERROR"]
    assert odd == []
    assert len(log.records) < inputs // 10 + 10, "anybody can fill the disk with the log"


@pytest.mark.guarantee("ports-are-guarded")
async def test_no_client_of_the_hub_and_no_job_keeps_a_user_from_the_jobs(
    tmp_path: Path, inputs: int, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    bearer = f"Authorization: Bearer {USER}"
    one = "/jobs/ns/good"
    requests = HttpRequests(
        f"hub {seed}",
        paths=(
            "/status",
            "/stream",
            *(f"{one}/{end}" for end in ("", "status", "log", "offers", "scale")),
        )
        * 5,
        headers=(*(bearer,) * 50, *(f"Authorization: Bearer {number}" for number in range(20))),
        bodies=(DEEP, TINY, b'{"size":3}'),
    )
    async with hub(tmp_path) as port:
        connect = connecting(port)

        async def serves() -> None:
            answer = await asked(connect, "GET /status", bearer)
            assert answer.startswith(b"HTTP/1.1 200 "), answer[:300]
            assert b'"ns/good"' in answer

        await serves()  # signed in, the user depends on no other one's turn
        slow = [await connect() for _ in range(SLOW_READERS)]
        for number, (_, writer) in enumerate(slow):
            path = ("/stream", "/status")[number % 2]
            writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\n{bearer}\r\n\r\n".encode() * 20)
        await check_survival(connect, requests, inputs // 20, serves, caplog)
        for _, writer in slow:
            writer.transport.abort()


@pytest.mark.guarantee("ports-are-guarded")
async def test_no_client_of_the_webhook_keeps_the_api_server_from_its_answers(
    tmp_path: Path, inputs: int, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    token = "only-the-api-server-knows-it"
    question = {
        "uid": "u",
        "kind": {"group": names.GROUP, "version": "v1alpha1", "kind": "ElasticJob"},
        "namespace": "ns",
        "operation": "CREATE",
        "object": job("good"),
    }
    review = json.dumps({"request": question}).encode()
    deep = review.replace(b'"jax"', DEEP + b"]" * 200_000)
    requests = HttpRequests(
        f"webhook {seed}",
        methods=("POST",),
        paths=(*(f"/{token}",) * 30, f"/{token}x", "/x", f"/{'x' * 5000}"),
        bodies=(review, review, deep, DEEP, TINY, review.replace(b'"good"', b"7"), review[:-9]),
    )
    async with webhook(tmp_path, token.encode()) as port:
        connect = connecting(port)

        await until("the webhook has its certificate", partial(is_open, connect))

        async def serves() -> None:
            head = f"Content-Length: {len(review)}"
            answer = await asked(connect, f"POST /{token}", head, body=review)
            assert answer.startswith(b"HTTP/1.1 200 "), answer[:300]

        await check_survival(connect, requests, inputs // 20, serves, caplog)
