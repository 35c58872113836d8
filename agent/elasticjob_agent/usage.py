"""Measures CPU, memory and GPUs of the training processes, for the auto-scaler.

Threads measure, because a measurement can take long on a machine short of CPU, or with a driver
that hangs. Each heartbeat carries the newest measurement.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import psutil

from elasticjob_agent import cgroup, gpu
from elasticjob_agent.standby.import_list import Memory

STALE_SECONDS = 30.0
Reading = TypeVar("Reading")


@dataclass(frozen=True)
class Usage:
    """CPU cores in use since the last measurement, and memory that the kernel cannot reclaim."""

    cpu_cores: float = 0.0
    memory_bytes: int = 0


class Meter:
    """Measures the container by its cgroup, or without one this process' descendants."""

    def __init__(self, container: cgroup.Container | None) -> None:
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


def _usage_of_container(container: cgroup.Container) -> tuple[dict[tuple[int, float], float], int]:
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
            self._started = True
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
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
            except (OSError, psutil.Error):
                self._newest = self._unknown
            self._begun = None


class UsageMonitor:
    """Measures the container's CPU, memory and GPUs."""

    def __init__(self) -> None:
        """Find the container's cgroup; call it before this process starts others."""
        self._container = cgroup.own_container()
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
            limit = self._container.memory_limit() if self._container else None
            if self._container is None or limit is None or limit > machine.total:
                return Memory(total=machine.total, left=machine.available)
            left = limit - self._container.memory_bytes()
        except (OSError, ValueError):
            return Memory(total=machine.total, left=0)
        return Memory(total=limit, left=min(left, machine.available))

    def memory_kills(self) -> int:
        """Return the number of processes that the kernel has killed for memory; 0 if unknown."""
        if self._container is None:
            return 0
        try:
            return self._container.memory_kills()
        except (OSError, ValueError):
            return 0
