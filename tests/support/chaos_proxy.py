"""Runs an unreliable proxy to the API server.

It injects every fault of a network and of an overloaded server, drawn from a seed. The operator's
side is plain HTTP, so that the proxy can intervene anywhere; the API server's side is TLS. Answers
are passed on unchanged, watches line by line.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp
from aiohttp import web
from elasticjob_localcluster.cluster import Cluster
from yarl import URL

from tests.support.kubeconfig import write_kubeconfig

Fault = Literal["none", "lost before", "lost after", "429", "500", "503", "slow", "410"]
REQUESTS: dict[Fault, int] = {
    "none": 42,
    "lost before": 2,
    "lost after": 2,
    "429": 1,
    "500": 1,
    "503": 1,
    "slow": 1,
}
"""The number of requests in 50 with each fault; "after" means after the request was executed."""
WATCHES: dict[Fault, int] = {"none": 9, "lost before": 1, "503": 1, "410": 1}
"""The same for 12 watches; a watch without a fault is cut after a while."""
SLOW_SECONDS = 0.4
WATCH_SECONDS = 5.0
"""A watch that is cut lives at most this long; real ones live for minutes."""
_HOP_BY_HOP = {"host", "connection", "content-length", "transfer-encoding", "keep-alive"}
_MESSAGES = {
    429: "too many requests",
    500: "etcdserver: request timed out",
    503: "the server is not ready",
}
When = Literal["before", "after"]


@dataclass
class WriteRequest:
    """A write that reached the proxy.

    Attributes:
        status: the server's answer; 0 if there was none.
        body: its body.
    """

    method: str
    path: str
    status: int = 0
    body: bytes = b""


@dataclass
class ChaosProxy:
    """The running proxy.

    Attributes:
        kubeconfig: connects through the proxy.
        rng: draws the faults; None: there are none.
        writes: every write, in order of arrival.
        on_write: called with every write, before and after the server handles it.
        refuses_watches: while set, no watch begins.
        delay: seconds that every POST of a pod takes longer; unset: none.
        slow_lists: the kinds of which lists take `SLOW_SECONDS` longer, in plural.
        oldest: watches from a version before this one are rejected as too old.
    """

    kubeconfig: Path
    rng: random.Random | None = None
    writes: list[WriteRequest] = field(default_factory=list)
    on_write: Callable[[WriteRequest, When], None] | None = None
    refuses_watches: bool = False
    delay: float = 0.0
    slow_lists: Collection[str] = ()
    oldest: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    _server: str = ""
    _http: aiohttp.ClientSession | None = None
    _tls: ssl.SSLContext | None = None
    _bags: dict[int, list[Fault]] = field(default_factory=dict)
    _watches: set[asyncio.Transport] = field(default_factory=set)

    def cut_watches(self) -> None:
        """Break every open watch."""
        for transport in list(self._watches):
            transport.abort()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Forward a request, or inject a fault."""
        if request.query.get("watch", "") in ("1", "true"):
            return await self._watch(request)
        fault = self._draw(REQUESTS)
        write = WriteRequest(request.method, request.path)
        if request.method != "GET":
            self.writes.append(write)
            self._call_on_write(write, "before")
        if fault == "lost before":
            return _lost(request)
        is_list = request.method == "GET" and request.path.rpartition("/")[2] in self.slow_lists
        if fault == "slow" or is_list:
            await asyncio.sleep(SLOW_SECONDS)
        if fault in ("429", "500", "503"):
            return _refusal(int(fault))
        if self.delay and request.method == "POST" and request.path.endswith("/pods"):
            await asyncio.sleep(self.delay)
        body = write.body = await request.read()
        async with self._send(request, body) as answer:
            data = await answer.read()
        write.status = answer.status
        if request.method != "GET":
            self._call_on_write(write, "after")
        if fault == "lost after":
            return _lost(request)
        return web.Response(status=answer.status, headers=_passed(answer.headers), body=data)

    async def _watch(self, request: web.BaseRequest) -> web.StreamResponse:
        fault = self._draw(WATCHES)
        if self.refuses_watches or fault == "lost before":
            return _lost(request)
        if fault in ("429", "500", "503"):
            return _refusal(int(fault))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        if fault == "410" or int(request.query.get("resourceVersion") or self.oldest) < self.oldest:
            await response.prepare(request)
            expired = {
                "kind": "Status",
                "status": "Failure",
                "code": 410,
                "reason": "Expired",
                "message": "too old",
            }
            await response.write(json.dumps({"type": "ERROR", "object": expired}).encode() + b"\n")
            return response
        self._watches.add(transport)
        try:
            seconds = None
            if self.rng is not None:
                seconds = self.rng.uniform(0.5, WATCH_SECONDS)
            async with asyncio.timeout(seconds):
                async with self._send(request, b"") as answer:
                    if answer.status != 200:
                        return web.Response(status=answer.status, body=await answer.read())
                    await response.prepare(request)
                    async for line in answer.content:
                        await response.write(line)
        except (TimeoutError, ConnectionError):
            self._count("watch cut")
            transport.abort()
        finally:
            self._watches.discard(transport)
        return response

    def _send(self, request: web.BaseRequest, body: bytes) -> Any:
        assert self._http is not None
        assert self._tls is not None
        return self._http.request(
            request.method,
            URL(self._server + request.raw_path, encoded=True),
            headers={
                name: value
                for name, value in request.headers.items()
                if name.lower() not in _HOP_BY_HOP
            },
            data=body or None,
            ssl=self._tls,
            timeout=aiohttp.ClientTimeout(total=None),
        )

    def _draw(self, bag: dict[Fault, int]) -> Fault:
        """Draw from a bag that is refilled when it is empty.

        So every fault happens, in an order that the seed determines.
        """
        if self.rng is None:
            return "none"
        left = self._bags.setdefault(id(bag), [])
        if not left:
            left += self.rng.sample(list(bag), sum(bag.values()), counts=list(bag.values()))
        fault = left.pop()
        if fault != "none":
            self._count(fault)
        return fault

    def _count(self, fault: str) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def _call_on_write(self, write: WriteRequest, when: When) -> None:
        if self.on_write is not None:
            self.on_write(write, when)


@asynccontextmanager
async def chaos_proxy(
    cluster: Cluster, directory: Path, seed: int | None = None
) -> AsyncIterator[ChaosProxy]:
    """Run a proxy to the cluster's API server while the block lasts.

    It injects no faults if there is no seed.
    """
    proxy = ChaosProxy(directory / "proxy.kubeconfig", None)
    if seed is not None:
        proxy.rng = random.Random(seed)
    proxy._server = f"https://127.0.0.1:{cluster.port}"
    proxy._tls = _tls(cluster)
    runner = web.ServerRunner(
        web.Server(proxy.handle, handler_cancellation=True), shutdown_timeout=0.1
    )
    await runner.setup()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        auto_decompress=False, connector=connector, read_bufsize=2**24
    ) as proxy._http:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        write_kubeconfig(proxy.kubeconfig, f"http://{host}:{port}")
        try:
            yield proxy
        finally:
            print(f"chaos proxy: seed {seed}, faults {proxy.faults}, {len(proxy.writes)} writes")
            await runner.cleanup()


def _tls(cluster: Cluster) -> ssl.SSLContext:
    pki = cluster.state / "pki"
    context = ssl.create_default_context(cafile=pki / "ca.crt")
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    return context


def _lost(request: web.BaseRequest) -> web.Response:
    if isinstance(request.transport, asyncio.Transport):
        request.transport.abort()
    return web.Response()


def _refusal(status: int) -> web.Response:
    reason = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}[status]
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": status,
        "reason": reason,
    }
    headers = {"Retry-After": "1"} if status == 429 else {}
    return web.json_response({**body, "message": _MESSAGES[status]}, status=status, headers=headers)


def _passed(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}
