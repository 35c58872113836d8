"""Forwards a port of this machine to a port of a pod, through the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import aiohttp
from elasticjob_kube.errors import KubeError
from elasticjob_kube.pod_sockets import pod_socket
from elasticjob_kube.resources import PODS

from elasticjob_client.cluster import Cluster, explained
from elasticjob_client.errors import ClientError

_CONNECTIONS = 64
"""Connections at a time, each with its own websocket; further connections wait."""
_MOST = 256
"""Connections with those that wait; one more is closed."""
_CHUNK = 1 << 15
_DATA = 0
_ERROR = 1


@dataclass
class Forwarding:
    """A forwarded port.

    Attributes:
        address: `127.0.0.1:port`.
        problem: the error of the latest connection; empty if it has not failed.
    """

    address: str = ""
    problem: str = ""
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_CONNECTIONS))

    async def carry(
        self,
        cluster: Cluster,
        pod: str,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Carry a connection's bytes in both directions until one end closes it."""
        query = [("ports", str(port))]
        kube = cluster.kube
        namespace = cluster.namespace
        try:
            async with self._slots:
                with explained(cluster, PODS, pod):
                    async with pod_socket(
                        kube, namespace, pod, "portforward", query, "v4.channel.k8s.io"
                    ) as socket:
                        self.problem = await _carry(socket, reader, writer)
        except (ClientError, KubeError, OSError, aiohttp.ClientError) as error:
            self.problem = str(error)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def forward(cluster: Cluster, pod: str, port: int) -> AsyncIterator[Forwarding]:
    """Listen on a free port of 127.0.0.1, and carry its connections to a port of a pod.

    The port is closed when the block ends.

    Args:
        cluster: its user may get and create pods/portforward.
        pod: its name.
        port: the port at which the program in the pod listens.

    Raises:
        ClientError: there is no port. Later errors end the connection and are in `problem`.
    """
    forwarding = Forwarding()
    connections: set[asyncio.Task[None]] = set()
    closing = False

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if closing or len(connections) >= _MOST:  # or accepted just before the server was closed
            writer.close()
            return
        task = asyncio.create_task(forwarding.carry(cluster, pod, port, reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)
        # A task that is cancelled before it starts does not close the connection itself.
        task.add_done_callback(lambda _: writer.close())

    try:
        server = await asyncio.start_server(connected, "127.0.0.1", 0)
    except OSError as error:
        raise ClientError(f"no port of 127.0.0.1 can be used: {error.strerror}") from error
    forwarding.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield forwarding
    finally:
        closing = True
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _carry(
    socket: aiohttp.ClientWebSocketResponse,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> str:
    """Carry bytes until one end closes the connection; return the node's error, if any."""
    up = asyncio.create_task(_up(reader, socket))
    down = asyncio.create_task(_down(socket, writer))
    try:
        await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        return down.result() if down.done() else ""
    finally:
        for task in (up, down):
            task.cancel()
        await asyncio.gather(up, down, return_exceptions=True)


async def _up(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    while data := await reader.read(_CHUNK):
        await socket.send_bytes(bytes([_DATA]) + data)


async def _down(socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> str:
    begun: set[int] = set()
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel = message.data[0]
        data = message.data[1:]
        if channel not in begun:  # the first message of each channel is the number of the port
            begun.add(channel)
        elif channel == _ERROR:
            return str(data.decode(errors="replace"))
        elif channel == _DATA:
            writer.write(data)
            await writer.drain()
    return ""
