"""The figure about training while nothing changes: what the agent and checkpoints cost a process.

A process trains in a job with a process in standby and checkpoints in memory. What its pod uses of
the CPUs besides its training steps, and the time for which the program waits outside of them, are
lost for the training if all CPUs of the node are in use.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import psutil

from bench.bench_cluster import REPOSITORY, BenchCluster, until
from bench.figure import Result
from bench.training_pauses import Program, Quiet, start_job

_PROGRAM = Program("jax", "jax", (sys.executable, str(REPOSITORY / "bench" / "steady_training.py")))
_AGENT = {"standby": "Auto", "stateMemory": "512Mi"}
_ROUNDS = 5
_SECONDS = 20.0


async def overhead(bench: BenchCluster) -> Result:
    """Per cent of a process' CPU time in training steps; the limit is what the process itself uses.

    The rest are the agent and the process in standby.
    """
    with TemporaryDirectory(prefix="elasticjob-bench-") as name:
        folder = Path(name)
        records = folder / "records"
        async with bench.namespace() as namespace, bench.operator(namespace):
            await start_job(bench, namespace, _PROGRAM, folder, _AGENT, replicas=1)
            await until("the job trains", lambda: _trains(records), seconds=300)
            await until("a process is in standby", Quiet(namespace, 1), seconds=300)
            return await _measure(records, _training(records)[0])


async def _measure(records: Path, pid: int) -> Result:
    training = psutil.Process(pid)
    agent = training.parent()
    assert agent is not None
    seconds = np.memmap(records / str(pid), float, "r", shape=(2,))
    ours = []
    own = []
    for _ in range(_ROUNDS):
        before = _sample(seconds, training, agent)
        await asyncio.sleep(_SECONDS)
        steps, waited, process, pod = (_sample(seconds, training, agent) - before).tolist()
        ours.append(100 * (pod - steps + waited) / steps)
        own.append(100 * (process - steps + waited) / steps)
        sys.stderr.write(
            f"seconds: steps {steps:.2f}, waits {waited:.2f}, process {process:.2f}, "
            f"pod {pod:.2f}\n"
        )
    value = median(ours)
    return Result([value], own, "%", n=_ROUNDS, ratio=1 / (1 + value / 100))


def _sample(seconds: np.ndarray, training: psutil.Process, agent: psutil.Process) -> np.ndarray:
    """Return the program's numbers, and the CPU seconds of its process and of its pod."""
    pod = _cpu_seconds(agent, *agent.children(recursive=True))
    return np.array([*seconds, _cpu_seconds(training), pod])


def _cpu_seconds(*processes: psutil.Process) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


async def _trains(records: Path) -> bool:
    return bool(_training(records))


def _training(records: Path) -> list[int]:
    """Return the processes that count their steps."""
    return [int(path.name) for path in records.iterdir() if path.stat().st_size]
