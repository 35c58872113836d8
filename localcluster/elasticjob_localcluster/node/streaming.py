"""Serves exec and port-forward by the websockets of a kubelet.

The API server passes them through from the user. Each message begins with a byte that names its
channel. SPDY, the older protocol of kubectl, is not supported.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
from aiohttp import web

from elasticjob_localcluster.node.container_process import StartError
from elasticjob_localcluster.node.container_reaper import ContainerReaper
from elasticjob_localcluster.node.exec_process import ExecProcess, Streams, start
from elasticjob_localcluster.node.pod_workers import PodWorkers

FEATURE = "ExtendWebSocketsToKubelet"
"""The feature for which the API server passes the websockets of kubectl through to a node."""
_SESSIONS = 256
"""The bound of concurrent sessions: an exec is a process, a forwarded connection a socket."""
_MESSAGE_BYTES = 1 << 22
_CHUNK = 1 << 15
_STDIN = 0
_ERROR = 3
_RESIZE = 4
_CLOSE = 255
_MAX_PORTS = 16
_REST_SECONDS = 0.5
"""The time to read output after a command has ended, if its children hold it open."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Streaming:
    """Serves exec and port-forward for the pods of a node."""

    def __init__(self, pods: PodWorkers, reaper: ContainerReaper) -> None:
        self._pods = pods
        self._reaper = reaper
        self._open = 0

    def routes(self) -> list[web.RouteDef]:
        """Return the paths of a kubelet."""
        return [
            web.get("/exec/{namespace}/{pod}/{container}", self._bounded(self._exec)),
            web.get("/portForward/{namespace}/{pod}", self._bounded(self._port_forward)),
        ]

    def _bounded(self, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            if request.headers.get("Upgrade", "").lower() != "websocket":
                raise web.HTTPBadRequest(
                    text="the process node speaks websockets only: use a client that does"
                )
            if "*/*" not in request.headers.get("Accept", "*/*"):  # as a kubelet
                raise web.HTTPNotAcceptable(text="the answer is not a document: accept */*")
            if self._open >= _SESSIONS:
                raise web.HTTPTooManyRequests(
                    text=f"{_SESSIONS} execs and forwarded connections are open already"
                )
            self._open += 1
            try:
                return await handler(request)
            finally:
                self._open -= 1

        return handle

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        namespace, pod, container = (
            request.match_info[name] for name in ("namespace", "pod", "container")
        )
        worker = self._pods.find(namespace, pod)
        process = worker.containers.processes.get(container) if worker else None
        if process is None or process.exit is not None:
            raise web.HTTPNotFound(
                text=f'container "{container}" of pod "{pod}" does not run on this node'
            )
        argv = request.query.getall("command", [])
        if not argv:
            raise web.HTTPBadRequest(text="you must specify at least 1 command for the container")
        streams = _streams(request.query)
        socket = web.WebSocketResponse(
            protocols=("v5.channel.k8s.io", "v4.channel.k8s.io"), max_msg_size=_MESSAGE_BYTES
        )
        await socket.prepare(request)
        try:
            command = await start(self._reaper, process.command, argv, streams)
        except StartError as error:
            await _send(socket, _ERROR, _failure(f"error executing command in container: {error}"))
        else:
            try:
                await _attend(socket, command)
            finally:
                command.close()
        await socket.close()
        return socket

    async def _port_forward(self, request: web.Request) -> web.StreamResponse:
        namespace, pod = (request.match_info[name] for name in ("namespace", "pod"))
        worker = self._pods.find(namespace, pod)
        if worker is None or not worker.address:
            raise web.HTTPNotFound(text=f'pod "{pod}" does not run on this node')
        try:
            ports = [
                int(port) for text in request.query.getall("port", []) for port in text.split(",")
            ]
        except ValueError:
            ports = []
        if not 1 <= len(ports) <= _MAX_PORTS or not all(0 < port < 1 << 16 for port in ports):
            raise web.HTTPBadRequest(
                text=f"query parameter port: 1 to {_MAX_PORTS} port numbers are needed"
            )
        socket = web.WebSocketResponse(
            protocols=("v4.channel.k8s.io",), max_msg_size=_MESSAGE_BYTES
        )
        if not socket.can_prepare(request) or "SPDY" in request.headers.get(
            "Sec-WebSocket-Protocol", ""
        ):
            raise web.HTTPBadRequest(
                text="the process node does not speak SPDY, so kubectl port-forward does not work"
            )
        await socket.prepare(request)
        await _forward(socket, worker.address, ports)
        await socket.close()
        return socket


def _streams(query: Mapping[str, str]) -> Streams:
    wanted = {
        name: query.get(name) in ("1", "true") for name in ("input", "output", "error", "tty")
    }
    return Streams(
        stdin=wanted["input"],
        stdout=wanted["output"],
        stderr=wanted["error"],
        terminal=wanted["tty"],
    )


# --- exec


async def _attend(socket: web.WebSocketResponse, command: ExecProcess) -> None:
    """Pass data between user and command until the command ends or the user disconnects."""
    listening = asyncio.create_task(_listen(socket, command))
    outputs = [
        asyncio.create_task(_copy(reader, socket, number))
        for number, reader in command.outputs.items()
    ]
    try:
        either: set[asyncio.Future[Any]] = {listening, command.code}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if command.code.done():
            # A process that it has left may hold its outputs open.
            if outputs:
                await asyncio.wait(outputs, timeout=_REST_SECONDS)
            await _send(socket, _ERROR, _status(command.code.result()))
    finally:
        for task in (listening, *outputs):
            task.cancel()
        await asyncio.gather(listening, *outputs, return_exceptions=True)


async def _listen(socket: web.WebSocketResponse, command: ExecProcess) -> None:
    """Handle the user's messages until the user disconnects."""
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel = message.data[0]
        data = message.data[1:]
        if channel == _STDIN and command.stdin is not None and data:
            with contextlib.suppress(OSError):  # the command reads no more
                command.stdin.write(data)
                await command.stdin.drain()
        elif channel == _CLOSE and data == bytes([_STDIN]):
            command.end_input()
        elif channel == _RESIZE:
            with contextlib.suppress(ValueError, KeyError, TypeError, OSError):
                size = json.loads(data)
                command.resize(
                    *(min(max(int(size[name]), 1), 65535) for name in ("Width", "Height"))
                )


async def _copy(reader: asyncio.StreamReader, socket: web.WebSocketResponse, channel: int) -> None:
    with contextlib.suppress(OSError):  # the end of a terminal
        while data := await reader.read(_CHUNK):
            await _send(socket, channel, data)


async def _send(socket: web.WebSocketResponse, channel: int, data: bytes) -> None:
    await socket.send_bytes(bytes([channel]) + data)


def _status(code: int) -> bytes:
    """Return the end of a command in the form of a kubelet."""
    if code == 0:
        return json.dumps({"metadata": {}, "status": "Success"}).encode()
    message = (
        f"command terminated with non-zero exit code: command terminated with exit code {code}"
    )
    cause = {"reason": "ExitCode", "message": str(code)}
    return _failure(message, reason="NonZeroExitCode", details={"causes": [cause]})


def _failure(message: str, **more: object) -> bytes:
    reason = {"reason": "InternalError", "code": 500, "details": {"causes": [{"message": message}]}}
    return json.dumps(
        {"metadata": {}, "status": "Failure", "message": message} | (more or reason)
    ).encode()


# --- port-forward


async def _forward(socket: web.WebSocketResponse, address: str, ports: list[int]) -> None:
    """Pass data between user and ports until the user or all ports disconnect."""
    for position, port in enumerate(ports):
        for channel in (2 * position, 2 * position + 1):
            await _send(socket, channel, port.to_bytes(2, "little"))
    writers: dict[int, asyncio.StreamWriter] = {}
    copies = []
    for position, port in enumerate(ports):
        try:
            reader, writers[2 * position] = await asyncio.open_connection(address, port)
        except OSError as error:
            text = f"error forwarding port {port}: {error.strerror or error}"
            await _send(socket, 2 * position + 1, text.encode())
        else:
            copies.append(asyncio.create_task(_copy(reader, socket, 2 * position)))
    listening = asyncio.create_task(_pass_on(socket, writers))
    try:
        if copies:
            either: set[asyncio.Future[Any]] = {
                listening,
                asyncio.gather(*copies, return_exceptions=True),
            }
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (listening, *copies):
            task.cancel()
        await asyncio.gather(listening, *copies, return_exceptions=True)
        for writer in writers.values():
            writer.close()


async def _pass_on(
    socket: web.WebSocketResponse, writers: Mapping[int, asyncio.StreamWriter]
) -> None:
    async for message in socket:
        if message.type is aiohttp.WSMsgType.BINARY and message.data and message.data[0] in writers:
            writer = writers[message.data[0]]
            with contextlib.suppress(OSError):
                writer.write(message.data[1:])
                await writer.drain()
