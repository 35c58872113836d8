"""Measures CPU, memory and GPUs of the training processes, for the auto-scaler.

Threads measure, because a measurement can take long on a machine short of CPU, or with a driver
that hangs. Each heartbeat carries the newest measurement.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import psutil

from elasticjob_agent import gpu
from elasticjob_agent.standby.import_list import Memory

_MOUNTS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_OF_NODE = 0.05
"""The part of the node's memory that no container is to use for processes in standby."""


@dataclass(frozen=True)
class Container:
    """The cgroup folders of one container; both are the same in cgroup v2."""

    memory: Path
    cpu: Path
    version: int

    def memory_bytes(self) -> int:
        """Return the working set: the memory in use that the kernel cannot reclaim."""
        used, idle = ("memory.current", "inactive_file") if self.version == 2 else _V1_MEMORY
        return max(0, _number(self.memory / used) - _entry(self.memory / "memory.stat", idle))

    def memory_limit(self) -> int | None:
        """Return the memory that the container may use; None without a limit."""
        if self.version == 2:
            text = (self.memory / "memory.max").read_text().strip()
            return None if text == "max" else int(text)
        return _number(self.memory / "memory.limit_in_bytes")

    def memory_kills(self) -> int:
        """Return the number of processes that the kernel has killed for the memory limit."""
        file = "memory.events" if self.version == 2 else "memory.oom_control"
        return _entry(self.memory / file, "oom_kill")

    def killed_together(self) -> bool:
        """Return whether the kernel kills all processes if the limit of memory is exceeded."""
        try:
            return self.version == 2 and _number(self.memory / "memory.oom.group") == 1
        except OSError:  # of an old kernel
            return False

    def cpu_seconds(self) -> float:
        """Return the CPU seconds used since the container started."""
        if self.version == 2:
            return _entry(self.cpu / "cpu.stat", "usage_usec") / 1e6
        return _number(self.cpu / "cpuacct.usage") / 1e9


_V1_MEMORY = ("memory.usage_in_bytes", "total_inactive_file")


def own_container(
    mounts: Path = _MOUNTS, membership: Path = _OWN, pid: int | None = None
) -> Container | None:
    """Return this container's cgroup; None without one that contains only this process.

    The kubelet and the OOM killer use it, too. Where containers are plain processes (on the
    embedded cluster's node) or share a cgroup, its files exist, but count other processes. Call it
    before this process starts others.
    """
    for candidate in _candidates(mounts, membership):
        try:
            alone = all(
                _pids(folder) == {pid or os.getpid()}
                for folder in (candidate.memory, candidate.cpu)
            )
            if alone and candidate.memory_bytes() >= 0 and candidate.cpu_seconds() >= 0:
                return candidate
        except (OSError, ValueError):
            continue
    return None


def _candidates(mounts: Path, membership: Path) -> Iterator[Container]:
    """Yield possible cgroups: at the path in /proc/self/cgroup, and at the root of the mount."""
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return
    paths = {name: path.lstrip("/") for _, names, path in lines for name in names.split(",")}
    for inside in (True, False):
        if "" in paths:
            folder = mounts / paths[""] if inside else mounts
            yield Container(memory=folder, cpu=folder, version=2)
        if "memory" in paths and "cpuacct" in paths:
            memory = mounts / "memory"
            cpu = mounts / "cpuacct"
            if inside:
                memory = memory / paths["memory"]
                cpu = cpu / paths["cpuacct"]
            yield Container(memory=memory, cpu=cpu, version=1)


def _pids(folder: Path) -> set[int]:
    """Return the processes in a group; those of other containers count as 0."""
    return {int(line) for line in (folder / "cgroup.procs").read_text().split()}


def _number(path: Path) -> int:
    return int(path.read_text())


def _entry(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    raise ValueError(f"{path} has no {name}")


STALE_SECONDS = 30.0
Reading = TypeVar("Reading")


@dataclass(frozen=True)
class Usage:
    """CPU cores in use since the last measurement, and memory that the kernel cannot reclaim."""

    cpu_cores: float = 0.0
    memory_bytes: int = 0


class Meter:
    """Measures the container by its cgroup, or without one this process' descendants."""

    def __init__(self, container: Container | None) -> None:
        self._container = container
        self._seconds: dict[tuple[int, float], float] = {}
        self._time: float | None = None

    def read(self, now: float) -> Usage:
        """Return the usage since the last read; `now` counts seconds from any start."""
        try:
            if self._container:
                seconds, memory = _usage_of_container(self._container)
            else:
                seconds, memory = self._usage_of_descendants()
        except (OSError, ValueError):
            self._container = None  # the cgroup cannot be read after all
            self._time = None
            seconds, memory = self._usage_of_descendants()
        used = sum(value - self._seconds.get(key, 0.0) for key, value in seconds.items())
        cores = 0.0
        if self._time is not None and now > self._time:
            cores = max(used, 0.0) / (now - self._time)
        self._seconds = seconds
        self._time = now
        return Usage(cpu_cores=cores, memory_bytes=memory)

    def _usage_of_descendants(self) -> tuple[dict[tuple[int, float], float], int]:
        """Return CPU seconds of each descendant, and the memory of all."""
        seconds: dict[tuple[int, float], float] = {}
        memory = 0
        for process in psutil.Process().children(recursive=True):
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    memory += process.memory_info().rss
                    seconds[process.pid, process.create_time()] = times.user + times.system
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return seconds, memory


def _resident_bytes() -> int:
    """Return the memory of this process and its descendants."""
    own = psutil.Process()
    found = 0
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.Error):
            found += process.memory_info().rss
    return found


def _usage_of_container(container: Container) -> tuple[dict[tuple[int, float], float], int]:
    return {(0, 0.0): container.cpu_seconds()}, container.memory_bytes()


class Sampler(Generic[Reading]):
    """Reads in a thread, once for each call of `latest`."""

    def __init__(self, read: Callable[[], Reading], *, name: str, unknown: Reading) -> None:
        self._read = read
        self._name = name
        self._unknown = self._newest = unknown
        self._wanted = threading.Event()
        self._begun: float | None = None
        self._started = False

    def latest(self) -> Reading:
        """Return the newest reading and start another.

        Returns `unknown` while a reading has been running for more than `STALE_SECONDS`.
        """
        if not self._started:
            try:
                threading.Thread(target=self._work, name=self._name, daemon=True).start()
            except RuntimeError:  # the container has as many threads as it may have
                return self._unknown
            self._started = True
        self._wanted.set()
        begun = self._begun
        stuck = begun is not None and time.monotonic() - begun > STALE_SECONDS
        return self._unknown if stuck else self._newest

    def _work(self) -> None:
        while self._wanted.wait():
            self._wanted.clear()
            self._begun = time.monotonic()
            try:
                self._newest = self._read()
            except Exception:  # noqa: BLE001 (such as a text in a file that should be a number)
                self._newest = self._unknown
            self._begun = None


class UsageMonitor:
    """Measures the container's CPU, memory and GPUs."""

    def __init__(self, memory_limit: int = 0) -> None:
        """Find the container's cgroup; call it before this process starts others.

        `memory_limit`: the container's, where it has no cgroup; 0: none.
        """
        self._container = own_container()
        self._memory_limit = memory_limit
        meter = Meter(self._container)
        self._meter = Sampler(lambda: meter.read(time.monotonic()), name="usage", unknown=Usage())
        self._gpus = Sampler(gpu.Reader().read, name="gpu-usage", unknown=gpu.GpuUsage())

    def latest(self) -> tuple[Usage, gpu.GpuUsage]:
        """Return the newest readings."""
        return self._meter.latest(), self._gpus.latest()

    def memory(self) -> Memory:
        """Return the memory of the container; without a limit, that of the machine."""
        machine = psutil.virtual_memory()
        try:
            limit = (
                self._container.memory_limit() if self._container else self._memory_limit or None
            )
            together = self._container is not None and self._container.killed_together()
            if limit is None or limit > machine.total:
                return Memory(total=machine.total, left=machine.available, limited=False)
            used = self._container.memory_bytes() if self._container else _resident_bytes()
        except (OSError, ValueError):
            return Memory(total=machine.total, left=0)
        # A limit promises no memory of the node, which evicts pods when it has little left.
        left = min(limit - used, machine.available - int(_OF_NODE * machine.total))
        return Memory(total=limit, left=left, together=together)

    def memory_kills(self) -> int:
        """Return the number of processes that the kernel has killed for memory; 0 if unknown."""
        if self._container is None:
            return 0
        try:
            return self._container.memory_kills()
        except (OSError, ValueError):
            return 0
