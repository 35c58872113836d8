"""Carries out node checks: measures the connection to every peer, then runs the benchmark."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_processes.exec_child import dying_with_parent
from elasticjob_processes.killing import kill_tree

from elasticjob_agent import broken_node, node_benchmark, readiness

CONNECT_SECONDS = 3.0
CONNECT_ATTEMPTS = 3
PRODUCT_SECONDS = 30.0
"""For the matrix product, with its imports; at most a quarter of the check's time."""


class NodeCheck:
    """Runs the checks that the master requests, one at a time."""

    def __init__(
        self, environment: Mapping[str, str], command: Sequence[str], token: str | None
    ) -> None:
        self._environment = dict(environment)
        self._python = python_of(command, environment)
        self._token = token
        self._number = 0
        self._result: pb.CheckResult | None = None
        self._benchmark: subprocess.Popen[bytes] | None = None

    async def run(self, request: pb.Check) -> pb.CheckResult | None:
        """Run a check and return its result; of a repeated request the known one.

        None: an earlier call will return it, or another check has replaced it.
        """
        if request.number == self._number:
            return self._result
        self.end()
        self._number = request.number
        self._result = None
        result = pb.CheckResult(number=request.number)
        results = await _connect_to_all(request.peers)
        for peer, reached in zip(request.peers, results, strict=True):
            # One after the other: each is a round of pairs, as the members form a ring.
            link = await readiness.measure(peer, self._token) if reached else None
            if link is not None:
                result.links.add(address=peer, **link._asdict())
            elif not reached:
                result.unreached.append(peer)
        try:
            async with asyncio.timeout(request.timeout_seconds):
                if request.number == self._number:
                    await self._measure(request, result)
        except TimeoutError:
            result.problem = f"the node check has not ended within {request.timeout_seconds:g} s"
        if request.number != self._number:
            return None
        self.end()
        self._result = result
        return self._result

    def end(self) -> None:
        """Kill the benchmark with all its descendants."""
        if self._benchmark is not None:
            kill_tree(self._benchmark.pid)
            self._benchmark.returncode = 0  # it is reaped with all other children, not here
            self._benchmark = None

    async def _measure(self, request: pb.Check, result: pb.CheckResult) -> None:
        """Run the benchmark and the job's command, and add what they find to the result."""
        product_seconds = min(PRODUCT_SECONDS, request.timeout_seconds / 4)
        try:
            self._benchmark = benchmark = self._start(request.command, product_seconds)
        except (OSError, ValueError) as error:
            result.problem = f"the node check could not be started: {error}"
            return
        assert benchmark.stdout is not None
        with benchmark.stdout as pipe:
            text = await read_all(pipe.fileno())
        try:
            found = json.loads(text)
        except ValueError:
            result.problem = "the node check ended without a result"
            return
        result.seconds = found["seconds"]
        result.device = found.get("device", "")
        result.device_seconds = found.get("device_seconds", 0.0)
        if broken := broken_node.in_output(found.get("errors", "").splitlines()):
            result.problem = f"a matrix product failed: {broken}"
        elif found.get("code"):
            result.problem = f"the check command ended with exit code {found['code']}"
            if found["output"]:
                result.problem += f": {found['output']}"

    def _start(self, command: Any, product_seconds: float) -> subprocess.Popen[bytes]:
        script = [sys.executable, "-I", "-S", node_benchmark.__file__]
        benchmark = [*script, self._python, str(product_seconds), *command]
        return subprocess.Popen(
            dying_with_parent(benchmark),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )


def python_of(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the Python of the training command, else that of the container, or ""."""
    path = environment.get("PATH", "")
    own = [command[0]] if Path(command[0]).name.startswith("python") else []
    found = (shutil.which(name, path=path) for name in (*own, "python3", "python"))
    return next(filter(None, found), "")


async def read_all(source: int, *, most: int = 1 << 20) -> bytes:
    """Read to the end, or `most` bytes, on the event loop: a thread could not be cancelled."""
    loop = asyncio.get_running_loop()
    data = bytearray()
    ended = asyncio.Event()

    def read() -> None:
        chunk = os.read(source, 65536)
        data.extend(chunk)
        if not chunk or len(data) >= most:
            ended.set()

    loop.add_reader(source, read)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(source)
    return bytes(data)


async def _connect_to_all(peers: Any) -> list[bool]:
    return list(await asyncio.gather(*(_can_connect(peer) for peer in peers)))


async def _can_connect(address: str) -> bool:
    """Return whether a peer's agent accepts a connection."""
    for attempt in range(CONNECT_ATTEMPTS):
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(address, names.AGENT_READY_PORT)
        except (OSError, TimeoutError):
            await asyncio.sleep(0.2 * (attempt + 1))
        else:
            writer.close()
            return True
    return False
