"""What the training process uses, with all its children: the auto-scaler's view of CPU and memory."""

from __future__ import annotations

from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Usage:
    """Cores in use since the last look, and resident memory."""

    cpu_cores: float
    memory_bytes: int


class Meter:
    """Measures the agent's descendants; cores are the growth of their CPU seconds since the last look."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[int, float], float] = {}
        self._time: float | None = None

    def read(self, now: float) -> Usage:
        """Return the usage since the last read; `now` counts seconds from any start."""
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
        used = sum(value - self._seconds.get(key, 0.0) for key, value in seconds.items())
        elapsed = now - self._time if self._time is not None else 0.0
        self._seconds, self._time = seconds, now
        return Usage(cpu_cores=max(used, 0.0) / elapsed if elapsed > 0 else 0.0, memory_bytes=memory)
