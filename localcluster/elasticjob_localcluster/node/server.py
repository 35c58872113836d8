"""The node's HTTPS server, which the API server uses.

Logs, exec, port-forward, the list of pods, health.
Only a client with a certificate of the cluster's authority is served.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec
from aiohttp import web
from elasticjob_api.times import parse_time
from elasticjob_kube.guarded_server import GuardedServer, healthy

from elasticjob_localcluster.node.addresses import HOST_IP
from elasticjob_localcluster.node.container_logs import LogOptions, read_lines
from elasticjob_localcluster.node.container_status import Waiting
from elasticjob_localcluster.node.pod_workers import PodWorkers
from elasticjob_localcluster.node.streaming import Streaming

_BATCH = 1 << 16
_REQUEST_LINE_BYTES = 1 << 17
"""The arguments of an exec are in it."""


def tls(certificate: Path, key: Path, client_authority: Path) -> ssl.SSLContext:
    """Return the server's side of TLS; clients must show a certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(client_authority))
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def serve(
    pods: PodWorkers, streaming: Streaming, context: ssl.SSLContext
) -> tuple[GuardedServer, int]:
    """Serve on a free port; return the server, to be stopped at the end, and the port."""
    app = web.Application()
    app.add_routes(
        [
            web.get("/healthz", healthy),
            web.get("/pods", lambda _: _pods(pods)),
            web.get(
                "/containerLogs/{namespace}/{pod}/{container}", lambda request: _logs(pods, request)
            ),
            *streaming.routes(),
            web.route("*", "/{what:exec|attach|portForward|run}/{rest:.*}", _refused),
        ]
    )
    server = GuardedServer(
        app, context=context, handler_cancellation=True, max_line_size=_REQUEST_LINE_BYTES
    )
    return server, await server.start([HOST_IP], 0)


async def _refused(request: web.Request) -> web.Response:
    what = request.match_info["what"]
    text = (
        f"the process node does not do {what} in this way; "
        "it does exec and port-forward, over websockets"
    )
    return web.Response(status=501, text=text)


async def _pods(pods: PodWorkers) -> web.Response:
    items = [
        {
            "metadata": {**msgspec.to_builtins(worker.pod.metadata)},
            "spec": worker.pod.spec,
            "status": worker.pod.status,
        }
        for worker in pods.workers.values()
    ]
    body = msgspec.json.encode({"kind": "PodList", "apiVersion": "v1", "items": items})
    return web.Response(body=body, content_type="application/json")


async def _logs(pods: PodWorkers, request: web.Request) -> web.StreamResponse:
    namespace, pod, container = (
        request.match_info[name] for name in ("namespace", "pod", "container")
    )
    query = request.query
    worker = pods.find(namespace, pod)
    status = worker.containers.statuses.get(container) if worker else None
    if worker is None or status is None:
        return web.Response(
            status=404, text=f'container "{container}" of pod "{pod}" is not on this node'
        )
    try:
        options = _log_options(query)
        limit = _count(query, "limitBytes")
    except ValueError as error:
        return web.Response(status=400, text=f"bad query: {error}")
    current = status.restart_count
    if isinstance(status.state, Waiting) and status.last_terminated is None:
        text = f'container "{container}" in pod "{pod}" is waiting to start: {status.state.reason}'
        return web.Response(status=400, text=text)
    previous = query.get("previous") == "true"
    path = worker.containers.log_path(container, current - 1 if previous else current)
    if not path.exists():
        which = "previous terminated" if previous else "started"
        return web.Response(
            status=400, text=f'{which} container "{container}" in pod "{pod}" not found'
        )
    answer = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await answer.prepare(request)
    process = worker.containers.processes.get(container)
    if query.get("follow") == "true" and process is not None and not previous:
        await _send(answer, process.log.follow(options), limit)
    else:
        await _send(answer, _in_batches(path, options), limit)
    return answer


def _log_options(query: Mapping[str, str]) -> LogOptions:
    since = None
    if (seconds := _count(query, "sinceSeconds")) is not None:
        since = time.time() - seconds
    elif "sinceTime" in query:
        since = parse_time(query["sinceTime"])
    return LogOptions(
        tail=_count(query, "tailLines"), since=since, timestamps=query.get("timestamps") == "true"
    )


def _count(query: Mapping[str, str], name: str) -> int | None:
    if name not in query:
        return None
    number = int(query[name])
    if number < 0:
        raise ValueError(f"{name} must not be negative: {number}")
    return number


async def _in_batches(path: Path, options: LogOptions) -> AsyncIterator[bytes]:
    batch = []
    size = 0
    for line in read_lines(path, options):
        batch.append(line)
        size += len(line)
        if size > _BATCH:
            yield b"".join(batch)
            batch = []
            size = 0
    yield b"".join(batch)


async def _send(answer: web.StreamResponse, parts: AsyncIterator[bytes], limit: int | None) -> None:
    remaining = limit
    async for part in parts:
        if remaining is not None:
            part = part[:remaining]
            remaining -= len(part)
        await answer.write(part)
        if remaining == 0:
            break
    await answer.write_eof()
