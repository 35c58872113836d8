"""The raw limit.

Measures how fast the API server creates the same objects for a client that does nothing else.
Requests are rendered before the clock starts and answers are not read beyond their end: HTTP/1.1
over TLS on a bare asyncio protocol, one request under way per connection. No client in Python uses
less CPU.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from elasticjob_api.meta import Json
from elasticjob_localcluster.cluster import Cluster

CONNECTIONS = 32


@dataclass(frozen=True)
class Request:
    """One write."""

    method: str
    path: str
    body: Mapping[str, Any]

    def rendered(self, host: str) -> bytes:
        """Return the bytes to send."""
        kind = "merge-patch+json" if self.method == "PATCH" else "json"
        body = msgspec.json.encode(self.body)
        head = (
            f"{self.method} {self.path} HTTP/1.1\r\n"
            f"Host: {host}\r\n"
            f"Content-Type: application/{kind}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class _Connection(asyncio.Protocol):
    """Sends one request after the other from a list that all connections share."""

    def __init__(self, waiting: list[bytes], failures: list[bytes]) -> None:
        self._waiting = waiting
        self._failures = failures
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            asyncio.Transport, transport
        )  # uvloop's is one without being declared as such

    def start(self) -> None:
        """Send the next request, or end."""
        assert self._transport is not None
        if self._waiting:
            self._transport.write(self._waiting.pop())
        else:
            self._transport.close()
            self.ended.set_result(None)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if _is_complete(self._buffer):
            if not self._buffer.startswith(b"HTTP/1.1 2"):
                self._failures.append(bytes(self._buffer))
            self._buffer.clear()
            self.start()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(
                exc or ConnectionResetError("the API server ended the connection")
            )


async def create_all(cluster: Cluster, path: str, bodies: Sequence[Json]) -> float:
    """Create the objects, in order; return the seconds it took with all connections open before.

    Raises:
        RuntimeError: one of them was not created.
    """
    return await send_all(cluster, [Request("POST", path, body) for body in bodies])


async def send_all(
    cluster: Cluster, requests: Sequence[Request], *, connections: int = CONNECTIONS
) -> float:
    """Send the requests, in order; return the seconds it took with all connections open before.

    Raises:
        RuntimeError: one of them was refused.
    """
    waiting = [each.rendered(f"127.0.0.1:{cluster.port}") for each in reversed(requests)]
    failures: list[bytes] = []
    context = ssl.create_default_context(cafile=str(cluster.state / "pki" / "ca.crt"))
    context.load_cert_chain(
        cluster.state / "pki" / "admin.crt", cluster.state / "pki" / "admin.key"
    )
    loop = asyncio.get_running_loop()
    opened = [
        (
            await loop.create_connection(
                lambda: _Connection(waiting, failures), "127.0.0.1", cluster.port, ssl=context
            )
        )[1]
        for _ in range(connections)
    ]
    began = time.perf_counter()
    for connection in opened:
        connection.start()
    await asyncio.gather(*(connection.ended for connection in opened))
    seconds = time.perf_counter() - began
    if failures:
        raise RuntimeError(f"{len(failures)} of {len(requests)} requests failed: {failures[0]!r}")
    return seconds


def _is_complete(answer: bytearray) -> bool:
    end = answer.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = bytes(answer[:end]).lower()
    if b"transfer-encoding: chunked" in head:
        return answer.endswith(b"\r\n0\r\n\r\n")
    length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return len(answer) >= end + 4 + length
