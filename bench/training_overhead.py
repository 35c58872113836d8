"""The figure about training while nothing changes: what the agent and checkpoints cost a process.

A process trains in a job with a process in standby and checkpoints in memory. What its pod uses of
the CPUs besides its training steps, and the time for which the program waits outside of them, are
lost for the training if all CPUs of the node are in use.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import psutil
from elasticjob_kube.resources import ELASTIC_JOBS

from bench.bench_cluster import REPOSITORY, BenchCluster, until
from bench.figure import Result
from bench.training_pauses import Program, Quiet, manifest

_PROGRAM = Program("jax", (sys.executable, str(REPOSITORY / "bench" / "steady_training.py")))
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
        for each in (records, folder / "checkpoints"):
            each.mkdir()
        async with bench.namespace() as namespace, bench.operator(namespace):
            job = manifest(_PROGRAM, folder, _AGENT, replicas=1)
            await bench.kube.create(ELASTIC_JOBS, namespace, job)
            await until("the job trains", lambda: _trains(records), seconds=300)
            await until("a process is in standby", Quiet(namespace, 1), seconds=300)
            return await _measure(records, _training(records)[0])


@dataclass(frozen=True)
class _Sample:
    """Seconds since the process has begun: CPU time, and for what the program waits."""

    steps: float
    waited: float
    process: float
    pod: float

    @classmethod
    def take(cls, seconds: np.ndarray, training: psutil.Process, agent: psutil.Process) -> _Sample:
        """Read the numbers of the program and of its processes."""
        pod = [agent, *agent.children(recursive=True)]
        return cls(
            float(seconds[0]), float(seconds[1]), _cpu_seconds([training]), _cpu_seconds(pod)
        )


async def _measure(records: Path, pid: int) -> Result:
    training = psutil.Process(pid)
    agent = training.parent()
    assert agent is not None
    seconds = np.memmap(records / str(pid), float, "r", shape=(2,))
    ours = []
    own = []
    for _ in range(_ROUNDS):
        before = _Sample.take(seconds, training, agent)
        await asyncio.sleep(_SECONDS)
        after = _Sample.take(seconds, training, agent)
        steps = after.steps - before.steps
        process = after.process - before.process
        pod = after.pod - before.pod
        waited = after.waited - before.waited
        ours.append(100 * (pod - steps + waited) / steps)
        own.append(100 * (process - steps + waited) / steps)
        sys.stderr.write(
            f"seconds: steps {steps:.2f}, waits {waited:.2f}, process {process:.2f}, "
            f"pod {pod:.2f}\n"
        )
    value = median(ours)
    return Result(value=value, unit="%", limit=median(own), ratio=1 / (1 + value / 100), n=_ROUNDS)


def _cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


async def _trains(records: Path) -> bool:
    return bool(_training(records))


def _training(records: Path) -> list[int]:
    """Return the processes that count their steps."""
    return [int(path.name) for path in records.iterdir() if path.stat().st_size]
