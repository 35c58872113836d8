"""Carries out node checks: runs the benchmark in another process, and connects to every peer."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_processes.exec_child import dying_with_parent
from elasticjob_processes.killing import kill_tree

from elasticjob_agent import node_benchmark

CONNECT_SECONDS = 3.0
CONNECT_ATTEMPTS = 3


class NodeCheck:
    """Runs the checks that the master requests, one at a time."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Prepare; the benchmark gets this environment."""
        self._environment = dict(environment)
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
        problem = ""
        seconds = 0.0
        results = await _connect_to_all(request.peers)
        unreached = [
            peer for peer, reached in zip(request.peers, results, strict=True) if not reached
        ]
        try:
            async with asyncio.timeout(request.timeout_seconds):
                if request.number == self._number:
                    seconds, problem = await self._measure(request.command)
        except TimeoutError:
            problem = f"the node check has not ended within {request.timeout_seconds:g} s"
        if request.number != self._number:
            return None
        self.end()
        self._result = pb.CheckResult(
            number=request.number, seconds=seconds, problem=problem, unreached=unreached
        )
        return self._result

    def end(self) -> None:
        """Kill the benchmark with all its descendants."""
        if self._benchmark is not None:
            kill_tree(self._benchmark.pid)
            self._benchmark.returncode = 0  # it is reaped with all other children, not here
            self._benchmark = None

    async def _measure(self, command: Any) -> tuple[float, str]:
        """Run the benchmark and the job's command.

        Returns the benchmark's seconds, and a problem or "".
        """
        try:
            self._benchmark = benchmark = self._start(command)
        except (OSError, ValueError) as error:
            return 0.0, f"the node check could not be started: {error}"
        assert benchmark.stdout is not None
        with benchmark.stdout as pipe:
            text = await read_all(pipe.fileno())
        try:
            result = json.loads(text)
        except ValueError:
            return 0.0, "the node check ended without a result"
        if result.get("code"):
            problem = f"the check command ended with exit code {result['code']}"
            if result["output"]:
                problem += f": {result['output']}"
            return result["seconds"], problem
        return result["seconds"], ""

    def _start(self, command: Any) -> subprocess.Popen[bytes]:
        benchmark = [sys.executable, "-I", "-S", node_benchmark.__file__, *command]
        return subprocess.Popen(
            dying_with_parent(benchmark),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )


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
