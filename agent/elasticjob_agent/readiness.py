"""Serves the port that the pod's readiness probe connects to.

It opens when the master has accepted the agent. It stays open while the master is disconnected, so
that a member that trains does not become unready when the master restarts. Other agents of the job
measure their connection to this one through it, or watch whether this node still answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import socket
import time
from typing import NamedTuple

from elasticjob_api import names

from elasticjob_agent.log import say

ROUND_TRIPS = 20
TRANSFERS = 3
"""The fastest of each counts: a short disturbance does not make a node unfit."""
BLOCK_BYTES = 4 << 20
MEASURE_SECONDS = 4.0
"""For one measurement, and for the wait before it. A block that takes longer counts with this."""
HELLO_SECONDS = 3.0
MAX_CONNECTIONS = 16
_NONCE_BYTES = 16
_PAIRS = b"elasticjob pairs "
_WATCH = b"elasticjob watch "
_LOST_WATCHER_SECONDS = 60
"""After this time without an answer the kernel asks whether a watcher is still there."""


class Link(NamedTuple):
    """A measured connection to another member."""

    round_trip_seconds: float
    bytes_per_second: float


class PairServer:
    """Answers the measurements of other agents of the job: of latency and bandwidth.

    It sends a nonce. An agent of the job answers with its keyed hash and waits for its turn, as one
    measurement is served at a time. It then sends single bytes and blocks of data, and this agent
    answers each with as much: so the slower direction counts. The connection of an agent that
    watches this one stays open. Whoever sends nothing, such as the kubelet's probe, is
    disconnected; among many, the oldest stranger first.
    """

    def __init__(self, token: str | None) -> None:
        """Answer those that know the job's token, which is None in a job without one."""
        self._token = token
        self._strangers: list[asyncio.StreamWriter] = []
        """The connections that have not yet shown the token, oldest first."""
        self._known = 0
        self._turn = asyncio.Lock()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, within a bound of time and bytes."""
        self._strangers.append(writer)
        try:
            if len(self._strangers) + self._known > MAX_CONNECTIONS:
                self._strangers.pop(0).transport.abort()
            await self._serve(reader, writer)
        except (OSError, EOFError, TimeoutError):
            pass  # the other end has left, or is no agent of the job
        except asyncio.CancelledError:
            pass  # asyncio would log it when the agent ends: this task is its own
        finally:
            self._forget(writer)
            writer.close()

    def _forget(self, writer: asyncio.StreamWriter) -> None:
        if writer in self._strangers:
            self._strangers.remove(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        writer.write(nonce)
        proof = _proof(self._token, _PAIRS, nonce)
        async with asyncio.timeout(HELLO_SECONDS):
            answer = await reader.readexactly(len(proof))
        if hmac.compare_digest(answer, _proof(self._token, _WATCH, nonce)):
            self._forget(writer)
            await _keep_open(reader, writer)
            return
        if not hmac.compare_digest(answer, proof):
            return
        self._forget(writer)
        self._known += 1
        try:
            async with asyncio.timeout(2 * MEASURE_SECONDS), self._turn:
                await _answer(reader, writer)
        finally:
            self._known -= 1


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the bytes and blocks of one measurement with as much."""
    writer.write(b"!")
    for _ in range(ROUND_TRIPS):
        writer.write(await reader.readexactly(1))
    for _ in range(TRANSFERS):
        writer.write(await reader.readexactly(BLOCK_BYTES))
    await writer.drain()


async def _keep_open(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Keep the connection of a watcher until its end; the kernel notices if it vanishes."""
    link: socket.socket = writer.get_extra_info("socket")
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _LOST_WATCHER_SECONDS)
    await reader.read(1)  # a watcher sends nothing


async def begin_watch(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str | None
) -> None:
    """Have the agent at the other end keep this connection open."""
    nonce = await reader.readexactly(_NONCE_BYTES)
    writer.write(_proof(token, _WATCH, nonce))


async def measure(address: str, token: str | None) -> Link | None:
    """Measure the connection to a member's agent; None if it cannot be measured now."""
    round_trip = block = MEASURE_SECONDS
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(MEASURE_SECONDS):
            reader, writer = await asyncio.open_connection(address, names.AGENT_READY_PORT)
            nonce = await reader.readexactly(_NONCE_BYTES)
            writer.write(_proof(token, _PAIRS, nonce))
            await reader.readexactly(1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MEASURE_SECONDS):
                for _ in range(ROUND_TRIPS):
                    round_trip = min(round_trip, await _seconds(b"?", reader, writer))
                data = bytes(BLOCK_BYTES)
                for _ in range(TRANSFERS):
                    block = min(block, await _seconds(data, reader, writer))
    except (OSError, EOFError, TimeoutError):
        return None  # it serves others, or closes the connection, as earlier versions do
    finally:
        if writer is not None:
            writer.close()
    return Link(round_trip, 2 * BLOCK_BYTES / block)


async def _seconds(
    data: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> float:
    """Send data; return the seconds until as much has come back."""
    begun = time.monotonic()
    writer.write(data)
    await writer.drain()
    await reader.readexactly(len(data))
    return max(time.monotonic() - begun, 1e-9)


def _proof(token: str | None, purpose: bytes, nonce: bytes) -> bytes:
    return hmac.digest((token or "").encode(), purpose + nonce, "sha256")


class Readiness:
    """Accepts the probe's connections, and those of agents that measure."""

    def __init__(self, address: str, token: str | None) -> None:
        """Prepare to listen on this pod's address, for agents that know the job's token."""
        self._address = address
        self._token = token
        self._server: asyncio.Server | None = None
        self._announced = False

    async def announce(self) -> None:
        """Listen from now on; further calls do nothing. A failure is only logged."""
        if self._announced:
            return
        self._announced = True
        try:
            self._server = await asyncio.start_server(
                PairServer(self._token).serve, self._address, names.AGENT_READY_PORT
            )
        except OSError as error:
            say(f"cannot open the readiness port: {error.strerror or error}")

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
