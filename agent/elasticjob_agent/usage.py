"""What the training process uses, with all its children: the auto-scaler's view of CPU, memory and GPUs.

Measured in threads of their own, because reading can take long: on a machine short of CPU, or from a driver that hangs.
The stream is told the newest reading there is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import psutil

from elasticjob_agent import cgroup, gpu

STALE_SECONDS = 30.0
Reading = TypeVar("Reading")


@dataclass(frozen=True)
class Usage:
    """Cores in use since the last look, and memory that cannot be taken back."""

    cpu_cores: float = 0.0
    memory_bytes: int = 0


class Meter:
    """Measures the container if it has a cgroup of its own, which counts all that is in it; else the descendants.

    Cores are the growth of the CPU seconds since the last look.
    """

    def __init__(self, container: cgroup.Container | None) -> None:
        self._container = container
        self._seconds: dict[tuple[int, float], float] = {}
        self._time: float | None = None

    def read(self, now: float) -> Usage:
        """Return the usage since the last read; `now` counts seconds from any start."""
        try:
            seconds, memory = self._counted() if self._container is None else _counted(self._container)
        except (OSError, ValueError):
            self._container, self._time = None, None  # it is not what it seemed to be
            seconds, memory = self._counted()
        used = sum(value - self._seconds.get(key, 0.0) for key, value in seconds.items())
        elapsed = now - self._time if self._time is not None else 0.0
        self._seconds, self._time = seconds, now
        return Usage(cpu_cores=max(used, 0.0) / elapsed if elapsed > 0 else 0.0, memory_bytes=memory)

    def _counted(self) -> tuple[dict[tuple[int, float], float], int]:
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


def _counted(container: cgroup.Container) -> tuple[dict[tuple[int, float], float], int]:
    return {(0, 0.0): container.cpu_seconds()}, container.memory_bytes()


class Sampler(Generic[Reading]):
    """Reads in a thread of its own, once for each time somebody looks."""

    def __init__(self, read: Callable[[], Reading], *, name: str, unknown: Reading) -> None:
        self._read = read
        self._name = name
        self._unknown = self._newest = unknown
        self._wanted = threading.Event()
        self._begun: float | None = None
        self._started = False

    def latest(self) -> Reading:
        """Return the newest reading and have another one made; not known while a reading takes all too long."""
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
    """All that is measured on behalf of one agent."""

    def __init__(self) -> None:
        """Look for the container's cgroup, before there are children, and for GPUs when somebody asks first."""
        self._container = cgroup.own()
        meter = Meter(self._container)
        self._meter = Sampler(lambda: meter.read(time.monotonic()), name="usage", unknown=Usage())
        self._gpus = Sampler(gpu.Reader().read, name="gpu-usage", unknown=gpu.GpuUsage())

    def latest(self) -> tuple[Usage, gpu.GpuUsage]:
        """Return the newest readings."""
        return self._meter.latest(), self._gpus.latest()

    def memory_kills(self) -> int:
        """Return how many processes of the container the kernel has killed for memory; 0 where nobody counts them."""
        try:
            return self._container.memory_kills() if self._container is not None else 0
        except (OSError, ValueError):
            return 0
