"""Runs a command in a running container, as `kubectl exec` does."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from elasticjob_kube.errors import NoAccess
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
    """A command that runs in a container.

    Attributes:
        code: its exit code, once `output` has come to its end.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, where: str) -> None:
        """`where`: the pod, for errors."""
        self.code: int | None = None
        self._socket = socket
        self._where = where

    async def output(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """Yield what the command writes, with `STDOUT` or `STDERR`, until it has ended.

        Raises:
            ClientError: it was not started, or the connection to the pod was lost.
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
        raise ClientError(f"{self._where}: the connection was lost before the command has ended")

    async def write(self, data: bytes) -> None:
        """Send a part of its input; nothing once the connection is gone."""
        for start in range(0, len(data), _CHUNK):
            await self._send(STDIN, data[start : start + _CHUNK])

    async def end_input(self) -> None:
        """Let it read the end of its input."""
        await self._send(_CLOSE, bytes([STDIN]))

    async def resize(self, width: int, height: int) -> None:
        """Tell the size of the user's terminal, in characters."""
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

    It is killed, or left alone by its input, when the block ends before it.

    Args:
        cluster: its user may get and create pods/exec.
        pod: its name.
        command: program and arguments; no shell is involved.
        container: of the pod; None: its only one.
        stdin: whether it gets input.
        terminal: whether it gets a terminal; then all it writes is `STDOUT`.

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
    except NoAccess as error:
        raise ClientError(str(error)) from error
    except (aiohttp.ClientError, ConnectionError) as error:
        raise ClientError(f"{where}: the connection was lost: {error}") from error


def exit_code(status: bytes, where: str) -> int:
    """Return the exit code that a kubelet's last message tells.

    Raises `ClientError` where no command has run.
    """
    try:
        said: dict[str, Any] = json.loads(status)
    except ValueError:
        said = {"message": status[:500].decode(errors="replace")}
    if said.get("status") == "Success":
        return 0
    for cause in (said.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise ClientError(f"{where}: {said.get('message') or 'the command has not run'}")
