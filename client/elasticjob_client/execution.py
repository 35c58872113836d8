"""Runs a command in a running container, as `kubectl exec` does."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from elasticjob_kube.pod_sockets import pod_socket
from elasticjob_kube.resources import PODS

from elasticjob_client.cluster import Cluster, explained
from elasticjob_client.errors import ClientError

STDIN = 0
STDOUT = 1
STDERR = 2
_STATUS = 3
_RESIZE = 4
_CLOSE = 255
_CHUNK = 1 << 15


class Execution:
    """A command that runs in a container. It has a `code` once `output` has ended."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, where: str) -> None:
        """`where`: the pod, for errors."""
        self.code: int | None = None
        self._socket = socket
        self._where = where

    async def output(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """Yield the command's output, with `STDOUT` or `STDERR`, until the command has ended.

        Raises:
            ClientError: the command was not started, or the connection to the pod was lost.
        """
        async for message in self._socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel = message.data[0]
            data = message.data[1:]
            if channel == _STATUS:
                self.code = exit_code(data, self._where)
                return
            if channel in (STDOUT, STDERR) and data:
                yield channel, data
        raise ClientError(f"{self._where}: the connection was lost before the command ended")

    async def write(self, data: bytes) -> None:
        """Send a part of its input; does nothing once the connection is closed."""
        for start in range(0, len(data), _CHUNK):
            await self._send(STDIN, data[start : start + _CHUNK])

    async def end_input(self) -> None:
        """Close its input."""
        await self._send(_CLOSE, bytes([STDIN]))

    async def resize(self, width: int, height: int) -> None:
        """Send the size of the user's terminal, in characters."""
        await self._send(_RESIZE, json.dumps({"Width": width, "Height": height}).encode())

    async def _send(self, channel: int, data: bytes) -> None:
        if not self._socket.closed:
            await self._socket.send_bytes(bytes([channel]) + data)


@asynccontextmanager
async def execute(
    cluster: Cluster,
    pod: str,
    command: Sequence[str],
    *,
    container: str | None = None,
    stdin: bool = False,
    terminal: bool = False,
) -> AsyncIterator[Execution]:
    """Start a command in a container of a pod.

    If the block ends first, the command is killed, or its input is closed.

    Args:
        cluster: its user may get and create pods/exec.
        pod: its name.
        command: program and arguments; no shell is involved.
        container: a container of the pod; None for its only one.
        stdin: whether the command gets input.
        terminal: whether the command gets a terminal; all its output is then `STDOUT`.

    Raises:
        NoSuchObject: there is no such pod.
        ClientError: the command cannot be started.
    """
    query = [("command", part) for part in command]
    if container is not None:
        query.append(("container", container))
    wanted = {"stdin": stdin, "stdout": True, "stderr": not terminal, "tty": terminal}
    query += [(name, "true") for name, value in wanted.items() if value]
    where = f"pod {cluster.namespace}/{pod}"
    try:
        with explained(cluster, PODS, pod):
            async with pod_socket(
                cluster.kube, cluster.namespace, pod, "exec", query, "v5.channel.k8s.io"
            ) as socket:
                yield Execution(socket, where)
    except (aiohttp.ClientError, ConnectionError) as error:
        raise ClientError(f"{where}: the connection was lost: {error}") from error


def exit_code(status: bytes, where: str) -> int:
    """Return the exit code in a kubelet's last message.

    Raises `ClientError` if no command has run.
    """
    try:
        answer: dict[str, Any] = json.loads(status)
    except ValueError:
        answer = {"message": status[:500].decode(errors="replace")}
    if answer.get("status") == "Success":
        return 0
    for cause in (answer.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise ClientError(f"{where}: {answer.get('message') or 'the command has not run'}")
