"""Measures for how long this process computes nothing, whatever its event loops do.

Gloo's event loop spins if a connection has ended in the middle of a message.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection
from pathlib import Path

_SHARE = 0.1
"""A process that computes, such as in a compiler, uses more of one CPU."""

_THREADS = Path("/proc/self/task")
_WAITS = {22, 232, 281, 441}
"""The system calls `epoll_wait`, `epoll_pwait` and `epoll_pwait2` of x86-64 and AArch64."""


def event_loops() -> frozenset[str]:
    """Return the threads that wait for events of files now; none if the kernel does not say it."""
    found = set()
    for thread in _THREADS.iterdir():
        with contextlib.suppress(OSError, ValueError):
            if int((thread / "syscall").read_text().split()[0]) in _WAITS:
                found.add(thread.name)
    return frozenset(found)


class Idleness:
    """The time for which all threads but this one and some event loops have computed nothing."""

    def __init__(self, loops: Collection[str] = ()) -> None:
        """Begin to measure, without these threads."""
        self._loops = loops
        self.restart()

    def restart(self) -> None:
        """Begin to measure."""
        self._since = time.monotonic()
        self._used = self._cpu_seconds()

    def seconds(self) -> float:
        """Return the seconds since this process has last computed."""
        seconds = time.monotonic() - self._since
        if self._cpu_seconds() - self._used > _SHARE * max(1.0, seconds):
            self.restart()
            return 0.0
        return seconds

    def _cpu_seconds(self) -> float:
        loops = sum(_thread_seconds(thread) for thread in self._loops)
        return time.process_time() - time.thread_time() - loops


def _thread_seconds(thread: str) -> float:
    """Return the CPU seconds of a thread; 0 if it has ended."""
    try:
        fields = (_THREADS / thread / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
