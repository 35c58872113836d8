"""Figures about a change of a world: how long nobody trains, with real frameworks.

A job of two pods is scaled to three and back, and one of its processes is killed, on an embedded
cluster with a node. It trains an example, and paused_training.py records what the example does
when. The parts of each pause are written to standard error.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import psutil
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS

from bench import jobs
from bench.bench_cluster import REPOSITORY, BenchCluster, on_cluster, until
from bench.figure import NotMeasured, Result

_RECORDED = str(REPOSITORY / "bench" / "paused_training.py")
_EXAMPLES = REPOSITORY / "examples"
_PYTORCH = (_RECORDED, str(_EXAMPLES / "frameworks" / "pytorch" / "train.py"))
_MIRRORED = _EXAMPLES / "frameworks" / "tensorflow" / "mirrored" / "train.py"
_SOURCES = ":".join(str(REPOSITORY / folder) for folder in ("library", "api", "shards"))
_SYSTEM_PYTHON = os.environ.get("FRAMEWORK_PYTHON", "/usr/bin/python3")
_ROUNDS = 3
_STEPS = 60
"""Steps before a change: more than one checkpoint."""
_QUIET_SECONDS = 2.5
"""The time without CPU after which a process in standby has imported everything."""
_FIND = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
_PARTS = ("began", "imported", "joined", "found", "step")
Parts = dict[str, float]
"""The seconds of the parts of one change of the world; the last two are sums."""


@dataclass(frozen=True)
class Program:
    """How a framework's processes are started."""

    framework: str
    module: str
    """What the Python of the command must have."""
    command: tuple[str, ...]
    """`{folder}` stands for a folder of the job."""


PYTORCH = Program("pytorch", "torch", (_SYSTEM_PYTHON, *_PYTORCH))
_TORCHRUN_LOGS = ("-r", "1", "-t", "1", "--log_dir", "{folder}")
"""Debian's torchrun of PyTorch 1.13, with Python 3.11, needs these options."""
TORCHRUN = Program(
    "pytorch",
    "torch",
    (_SYSTEM_PYTHON, "-m", "torch.distributed.run", *_TORCHRUN_LOGS, *_PYTORCH),
)
JAX = Program("jax", "jax", (sys.executable, _RECORDED, str(_EXAMPLES / "digits" / "train.py")))
TENSORFLOW = Program(
    "tensorflow",
    "tensorflow",
    (os.environ.get("FRAMEWORK_PYTHON", sys.executable), _RECORDED, str(_MIRRORED)),
)
"""FRAMEWORK_PYTHON must have TensorFlow: `tools/tensorflow_env` prints one."""


@dataclass
class World:
    """What the processes of one world have recorded; times are seconds since 1970.

    Attributes:
        size: the number of its processes.
        first: when each of its processes first recorded an event, by event.
        last_step: when its last step ended.
        pids: the process IDs by rank.
        steps: the steps of the process that has recorded the fewest.
    """

    size: int
    first: dict[str, list[float]] = field(default_factory=dict)
    last_step: float = 0.0
    pids: dict[int, int] = field(default_factory=dict)
    steps: int = 0


def worlds(records: Path) -> dict[int, World]:
    """Return the worlds that have been recorded, by round."""
    found: dict[int, World] = {}
    counts: dict[int, list[int]] = {}
    for path in sorted(records.iterdir()):
        round_, rank, size, pid = (int(part) for part in path.stem.split("-"))
        world = found.setdefault(round_, World(size))
        world.pids[rank] = pid
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for part in _PARTS:
            times = [at for event, at in lines if event == part]
            if times:
                world.first.setdefault(part, []).append(times[0])
        steps = [at for event, at in lines if event == "step"]
        world.last_step = max([world.last_step, *steps])
        counts.setdefault(round_, []).append(len(steps))
    for round_, world in found.items():
        if len(counts[round_]) == world.size:
            world.steps = min(counts[round_])
    return dict(sorted(found.items()))


def _check(program: Program) -> None:
    python = program.command[0]
    if subprocess.call([python, "-c", _FIND, program.module]):
        raise NotMeasured(f"{python} has no {program.module}")


async def _measure(bench: BenchCluster, program: Program, standby: str) -> dict[str, list[Parts]]:
    """Return the parts of all changes, by kind."""
    with TemporaryDirectory(prefix="elasticjob-bench-") as folder:
        async with bench.namespace() as namespace, bench.operator(namespace):
            job = _RunningJob(bench, namespace, Path(folder), standby=standby == "Auto")
            await start_job(bench, namespace, program, job.folder, {"standby": standby})
            await job.trains(2, after=0)
            changes: dict[str, list[Parts]] = {"scale-out": [], "scale-in": [], "kill -9": []}
            for _ in range(_ROUNDS):
                changes["scale-out"].append(await job.change(3, lambda: job.scale(3)))
                changes["scale-in"].append(await job.change(2, lambda: job.scale(2)))
                changes["kill -9"].append(await job.change(2, job.kill))
            return changes


@dataclass
class _RunningJob:
    """A job whose world is changed."""

    bench: BenchCluster
    namespace: str
    folder: Path
    standby: bool

    @property
    def records(self) -> Path:
        return self.folder / "records"

    async def change(self, size: int, request: Callable[[], Awaitable[None]]) -> Parts:
        """Change the world, wait until one of this size trains; return the parts of the pause."""
        before = max(worlds(self.records))
        requested = time.time()
        await request()
        await self.trains(size, after=before)
        found = worlds(self.records)
        following = next(round_ for round_ in found if round_ > before and found[round_].steps)
        return _parts(requested, found[before], found[following])

    async def scale(self, size: int) -> None:
        patch = {"spec": {"replicaSpecs": {"worker": {"replicas": size}}}}
        await self.bench.kube.patch(ELASTIC_JOBS, self.namespace, "job", patch)

    async def kill(self) -> None:
        newest = worlds(self.records)
        os.kill(newest[max(newest)].pids[1], signal.SIGKILL)

    async def trains(self, size: int, *, after: int) -> None:
        """Wait until a world of this size is trained for a while, and the next one is prepared."""

        async def trained() -> bool:
            found = worlds(self.records)
            newest = max(found, default=0)
            return newest > after and found[newest].size == size and found[newest].steps >= _STEPS

        await until(f"a world of {size} trains", trained, seconds=300)
        if self.standby:
            await until("all processes are in standby", Quiet(self.namespace, size), seconds=300)


class Quiet:
    """Whether this number of processes is in standby, and none has used CPU for a while."""

    def __init__(self, namespace: str, count: int) -> None:
        self._namespace = namespace
        self._count = count
        self._used: dict[int, float] = {}
        self._since = 0.0

    async def __call__(self) -> bool:
        """Return whether it is so."""
        await asyncio.sleep(0.5)
        used = {process.pid: sum(process.cpu_times()[:2]) for process in self._processes()}
        if used != self._used:
            self._used = used
            self._since = time.monotonic()
        return len(used) == self._count and time.monotonic() - self._since > _QUIET_SECONDS

    def _processes(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            try:
                waits = any(word.endswith("_standby_start.py") for word in process.cmdline())
                ours = process.environ().get(names.ENV_NAMESPACE) == self._namespace
                trains = names.ENV_RANK in process.environ()
            except psutil.Error:
                continue
            if waits and ours and not trains and not _runs(process):
                yield process


def _runs(process: psutil.Process) -> bool:
    """Return whether a process runs the program: it writes a record, or torchrun has started it."""
    try:
        records = any(file.path.endswith(".jsonl") for file in process.open_files())
        return records or bool(process.children())
    except psutil.Error:
        return True


def _parts(requested: float, before: World, after: World) -> Parts:
    """Return the seconds from the request, over the end of the old world, to the first step."""
    parts = {"request → last step": before.last_step - requested}
    at = before.last_step
    for part in _PARTS:
        ended = max(after.first[part])
        parts[f"→ {part}"] = ended - at
        at = ended
    return {**parts, "pause": at - before.last_step, "request → step": at - requested}


async def start_job(
    bench: BenchCluster,
    namespace: str,
    program: Program,
    folder: Path,
    agent: Json,
    *,
    replicas: int = 2,
) -> None:
    """Create a job with these fields of `spec.agent`, whose processes write in the folder.

    Its subfolders are `records` and `checkpoints`.
    """
    for name in ("records", "checkpoints"):
        (folder / name).mkdir()
    body = _manifest(program, str(folder), agent, replicas)
    await bench.kube.create(ELASTIC_JOBS, namespace, body)


def _manifest(program: Program, folder: str, agent: Json, replicas: int) -> Json:
    import sklearn  # takes a second

    variables = {
        "EPOCHS": "10000",  # more than are trained
        "RECORDS": f"{folder}/records",
        "CHECKPOINT_DIR": f"{folder}/checkpoints",
        "DIGITS": str(Path(sklearn.__file__).with_name("datasets") / "data" / "digits.csv.gz"),
        "PYTHONPATH": _SOURCES,
        "GLOO_SOCKET_IFNAME": "lo",
    }
    container = {
        "name": "train",
        "image": "train:1",
        "command": [word.format(folder=folder) for word in program.command],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "6Gi"}},
        "volumeMounts": [{"name": "shared", "mountPath": folder}],
    }
    volume = {"name": "shared", "hostPath": {"path": folder}}
    worker = {
        "replicas": replicas,
        "minReplicas": 1,
        "maxReplicas": 4,
        "restartLimit": 100,
        "template": {"spec": {"containers": [container], "volumes": [volume]}},
    }
    spec = {
        "framework": program.framework,
        "agent": {"source": "Image", **agent},
        "replicaSpecs": {"worker": worker},
    }
    return jobs.manifest(ELASTIC_JOBS, "job", spec)


def pauses(program: Program) -> Callable[[], Awaitable[Result]]:
    """Return the measurement of the longest pause of three kinds of changes.

    Each is the median. With `standby: Auto`; the limit is that without, so its ratio is the gain.
    """

    async def measured(bench: BenchCluster) -> Result:
        with_standby, without = [
            _print(standby, await _measure(bench, program, standby)) for standby in ("Auto", "None")
        ]
        return Result([with_standby], [without], "s", n=_ROUNDS)

    async def checked() -> Result:
        await asyncio.to_thread(_check, program)
        return await on_cluster(measured, node=True)()

    return checked


def _print(standby: str, changes: dict[str, list[Parts]]) -> float:
    """Print the medians of the parts of each kind of change; return the longest pause."""
    longest = 0.0
    for kind, chosen in changes.items():
        medians = {part: median(each[part] for each in chosen) for part in chosen[0]}
        texts = ", ".join(f"{part} {seconds:.2f}" for part, seconds in medians.items())
        sys.stderr.write(f"standby {standby}, {kind}: {texts}\n")
        longest = max(longest, medians["pause"])
    return longest
