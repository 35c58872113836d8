"""Startup, liveness and readiness probes, with the kubelet's defaults."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import aiohttp
import grpc
from elasticjob_api.meta import Json
from elasticjob_processes.killing import kill, shell_code

from elasticjob_localcluster.node.container_process import (
    Command,
    StartError,
    spawn,
)
from elasticjob_localcluster.node.container_reaper import ContainerReaper

_OUTPUT_BYTES = 1024
_CHECK = "/grpc.health.v1.Health/Check"
_SERVING = b"\x08\x01"
"""A grpc.health.v1.HealthCheckResponse that says SERVING."""


@dataclass(frozen=True)
class ProbeTarget:
    """The container to probe."""

    address: str
    ports: Mapping[str, int]
    command: Command
    """Its command; an exec probe runs with the same environment."""
    reaper: ContainerReaper
    http: aiohttp.ClientSession


async def probe(spec: Json, target: ProbeTarget) -> str | None:
    """Probe once; return the problem, or None after a success."""
    seconds = float(spec.get("timeoutSeconds", 1))
    try:
        async with asyncio.timeout(seconds):
            if "exec" in spec:
                return await _exec(spec["exec"].get("command") or [], target)
            if "httpGet" in spec:
                return await _http(spec["httpGet"], target)
            if "tcpSocket" in spec:
                return await _tcp(spec["tcpSocket"], target)
            return await _grpc(spec["grpc"], target)
    except TimeoutError:
        return f"no answer within {seconds:g} s"


class ContainerProbes:
    """The probes of one running container."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def add(
        self, spec: Json, target: ProbeTarget, on_threshold: Callable[[bool, str], None]
    ) -> None:
        """Start one probe."""
        self._tasks.append(asyncio.create_task(_probe_repeatedly(spec, target, on_threshold)))

    def cancel(self) -> None:
        """Stop the probes that were started; more may be added."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []


def start_probes(
    container: Json,
    target: ProbeTarget,
    *,
    started: Callable[[], None],
    failed: Callable[[Json, str], None],
    ready: Callable[[bool, str], None],
) -> ContainerProbes:
    """Start a container's probes: the startup probe first, then the others.

    `started` is called once, at once without a startup probe; `failed` with a probe's spec and the
    problem when the container must be restarted; `ready` after each readiness probe that reached a
    threshold.
    """
    container_probes = ContainerProbes()

    def begin() -> None:
        if liveness := container.get("livenessProbe"):
            container_probes.add(
                liveness, target, lambda good, message: None if good else failed(liveness, message)
            )
        if readiness := container.get("readinessProbe"):
            container_probes.add(readiness, target, ready)
        started()

    def on_startup_threshold(good: bool, message: str) -> None:
        if good:
            container_probes.cancel()
            begin()
        else:
            failed(container["startupProbe"], message)

    if startup := container.get("startupProbe"):
        container_probes.add(startup, target, on_startup_threshold)
    else:
        begin()
    return container_probes


async def _probe_repeatedly(
    spec: Json, target: ProbeTarget, on_threshold: Callable[[bool, str], None]
) -> None:
    """Probe until cancelled; call `on_threshold(success, message)` at each reached threshold."""
    await asyncio.sleep(spec.get("initialDelaySeconds", 0))
    thresholds = {True: spec.get("successThreshold", 1), False: spec.get("failureThreshold", 3)}
    period = float(spec.get("periodSeconds", 10))
    last = None
    count = 0
    while True:
        began = time.monotonic()
        problem = await probe(spec, target)
        good = problem is None
        count = count + 1 if good == last else 1
        last = good
        if count >= thresholds[good]:
            on_threshold(good, problem or "")
        await asyncio.sleep(max(0.0, began + period - time.monotonic()))


async def _exec(argv: list[str], target: ProbeTarget) -> str | None:
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    with tempfile.TemporaryFile() as output:
        try:
            pid = spawn(replace(target.command, argv=argv), output.fileno())
        except StartError as error:
            return str(error)
        target.reaper.watch(pid, lambda code: None if ended.done() else ended.set_result(code))
        try:
            code = shell_code(await ended)
        finally:
            if not ended.done():
                kill(pid)
        text = os.pread(output.fileno(), _OUTPUT_BYTES, 0).decode(errors="replace").strip()
        return None if code == 0 else f"command ended with {code}: {text}"


async def _http(spec: Json, target: ProbeTarget) -> str | None:
    scheme = spec.get("scheme", "HTTP").lower()
    host = spec.get("host") or target.address
    url = f"{scheme}://{host}:{_port(spec, target)}/{spec.get('path', '/').lstrip('/')}"
    headers = {header["name"]: header["value"] for header in spec.get("httpHeaders") or ()}
    try:
        # The kubelet does not check certificates of probed servers either.
        async with target.http.get(
            url, headers=headers, ssl=False, allow_redirects=False
        ) as answer:
            return None if 200 <= answer.status < 400 else f"{url} answered {answer.status}"
    except (aiohttp.ClientError, OSError) as error:
        return f"{url}: {error}"


async def _tcp(spec: Json, target: ProbeTarget) -> str | None:
    host = spec.get("host") or target.address
    port = _port(spec, target)
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        return f"{host}:{port}: {error}"
    writer.close()
    return None


async def _grpc(spec: Json, target: ProbeTarget) -> str | None:
    where = f"{target.address}:{_port(spec, target)}"
    name = spec.get("service", "").encode()
    request = b"\x0a" + _varint(len(name)) + name if name else b""
    async with grpc.aio.insecure_channel(where) as channel:
        try:
            answer = await channel.unary_unary(_CHECK, _as_is, _as_is)(request)
        except grpc.aio.AioRpcError as error:
            return f"{where}: {error.code().name}: {error.details()}"
    return None if answer == _SERVING else f"{where}: not serving"


def _varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + _varint(number >> 7)


def _as_is(message: bytes) -> bytes:
    return message


def _port(spec: Json, target: ProbeTarget) -> int:
    port = spec["port"]
    return port if isinstance(port, int) else target.ports.get(port, 0)
