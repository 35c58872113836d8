"""CPU, memory and GPU usage of the training process and all its children, for the auto-scaler.

Measured in separate threads, because a measurement can take long: on a machine short of CPU, or
with a driver that hangs. Each heartbeat carries the newest measurement.
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
    """CPU cores in use since the last measurement, and memory that the kernel cannot reclaim."""

    cpu_cores: float = 0.0
    memory_bytes: int = 0


class Meter:
    """Measures the container by its cgroup if it has its own, else this process' descendants.

    The cores in use are the increase of the CPU seconds since the last measurement, divided by the
    time.
    """

    def __init__(self, container: cgroup.Container | None) -> None:
        self._container = container
        self._seconds: dict[tuple[int, float], float] = {}
        self._time: float | None = None

    def read(self, now: float) -> Usage:
        """Return the usage since the last read; `now` counts seconds from any start."""
        try:
            container = self._container
            seconds, memory = (
                _usage_of_container(container) if container else self._usage_of_descendants()
            )
        except (OSError, ValueError):
            self._container, self._time = None, None  # the cgroup cannot be read after all
            seconds, memory = self._usage_of_descendants()
        used = sum(value - self._seconds.get(key, 0.0) for key, value in seconds.items())
        elapsed = now - self._time if self._time is not None else 0.0
        self._seconds = seconds
        self._time = now
        return Usage(
            cpu_cores=max(used, 0.0) / elapsed if elapsed > 0 else 0.0, memory_bytes=memory
        )

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
    """Reads in a thread of its own, once for each call of `latest`."""

    def __init__(self, read: Callable[[], Reading], *, name: str, unknown: Reading) -> None:
        self._read = read
        self._name = name
        self._unknown = self._newest = unknown
        self._wanted = threading.Event()
        self._begun: float | None = None
        self._started = False

    def latest(self) -> Reading:
        """Return the newest reading and start another.

        `unknown` while one has taken more than `STALE_SECONDS`.
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
        """Find the container's cgroup, which works only before there are children.

        GPUs are opened at the first use.
        """
        self._container = cgroup.own_container()
        meter = Meter(self._container)
        self._meter = Sampler(lambda: meter.read(time.monotonic()), name="usage", unknown=Usage())
        self._gpus = Sampler(gpu.Reader().read, name="gpu-usage", unknown=gpu.GpuUsage())

    def latest(self) -> tuple[Usage, gpu.GpuUsage]:
        """Return the newest readings."""
        return self._meter.latest(), self._gpus.latest()

    def memory_kills(self) -> int:
        """Return how many processes of the container the kernel has killed for memory.

        0 if that is not counted.
        """
        try:
            return self._container.memory_kills() if self._container is not None else 0
        except (OSError, ValueError):
            return 0
