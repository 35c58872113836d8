"""The figure about the training process: the cost of reporting a step.

The agent's side of the socket is the real one, in a separate process: `python -m
bench.step_reports` serves it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable

import elasticjob
import grpc.aio
from elasticjob_agent.training_socket import TrainingSocket

from bench.figure import Result

_STEPS = 100_000
_ROUNDS = 5


async def report_step() -> Result:
    """Microseconds of a `report_step` with a metric, in a loop that does nothing else.

    Of a lock and a dict alone.
    """
    async with _agent() as path:
        os.environ["ELASTICJOB_SOCKET"] = path
        try:
            ours = [await asyncio.to_thread(_microseconds, _report) for _ in range(_ROUNDS)]
        finally:
            del os.environ["ELASTICJOB_SOCKET"]
    raw = [await asyncio.to_thread(_microseconds, _bare()) for _ in range(_ROUNDS)]
    return Result(ours, raw, "µs")


def _report(step: int) -> None:
    elasticjob.report_step(step, total=_STEPS, samples=32, metrics={"loss": 0.5})


def _bare() -> Callable[[int], None]:
    lock = threading.Lock()
    kept = {"samples": 0.0, "seconds": 0.0}

    def update(step: int) -> None:
        with lock:
            kept.update(step=step, total=_STEPS, time=time.monotonic(), loss=0.5)
            kept["samples"] += 32

    return update


def _microseconds(call: Callable[[int], None]) -> float:
    began = time.perf_counter()
    for step in range(_STEPS):
        call(step)
    return (time.perf_counter() - began) / _STEPS * 1e6


@contextlib.asynccontextmanager
async def _agent() -> AsyncIterator[str]:
    """Run the agent's side; gives the socket's path."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "bench.step_reports",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


async def _serve() -> None:
    """Serve the socket until standard input ends."""
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        training_socket = TrainingSocket(channel=channel, pod_uid="bench", on_report=lambda _: None)
        await training_socket.open()
        sys.stdout.write(f"{training_socket.path}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        await training_socket.close()


if __name__ == "__main__":
    asyncio.run(_serve())
