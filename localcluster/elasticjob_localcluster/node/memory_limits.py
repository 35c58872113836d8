"""Enforces the memory limits of containers, as a kernel's memory control group would.

The resident memory of each limited process tree is measured a few times a second, and a tree over
its limit is killed. Shared pages count once. That sum is costly, so it is computed only if the
plain sum exceeds the limit.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from elasticjob_processes.table import process_table, trees

_PERIOD = 0.25
_CPU_SHARE = 0.05
"""The bound of the part of a core that polling uses."""


@dataclass(frozen=True)
class LimitedProcessTree:
    """A process tree for which `exceeded` is called when it uses more than `limit` returns."""

    pid: int
    limit: Callable[[], int | None]
    exceeded: Callable[[], None]


class MemoryWatcher:
    """Polls all process trees with a limit; the process table is read once for all."""

    def __init__(self) -> None:
        self._watched: dict[int, LimitedProcessTree] = {}
        self._usage: dict[int, int] = {}
        self._any = asyncio.Event()

    def add(self, watched: LimitedProcessTree) -> None:
        """Begin to watch a tree; its limit may change."""
        self._watched[watched.pid] = watched
        self._any.set()

    def remove(self, pid: int) -> None:
        """Stop watching a tree."""
        self._watched.pop(pid, None)
        self._usage.pop(pid, None)

    def usage(self, pid: int) -> int:
        """Return the bytes that a tree uses now."""
        return sum(process.resident for process in trees(process_table(), {pid})[pid].values())

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            if not self._watched:
                self._any.clear()
                await self._any.wait()
            began = time.monotonic()
            self._check_all()
            await asyncio.sleep(max(_PERIOD, (time.monotonic() - began) / _CPU_SHARE))

    def _check_all(self) -> None:
        limits = {
            pid: limit
            for pid, watched in self._watched.items()
            if (limit := watched.limit()) is not None
        }
        if not limits:
            return
        for pid, tree in trees(process_table(), set(limits)).items():
            if sum(process.resident for process in tree.values()) <= limits[pid]:
                continue
            if len(tree) == 1 or _proportional_bytes(tree) > limits[pid]:
                self._watched[pid].exceeded()


def _proportional_bytes(pids: Iterable[int]) -> int:
    """Return the memory of some processes in bytes; pages that they share count once."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            total += _proportional_bytes_of(pid)
    return total


def _proportional_bytes_of(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except PermissionError:  # an agent lets only root read it
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    kilobytes = [int(line.split()[1]) for line in lines if line.startswith("Pss:")]
    return 1024 * sum(kilobytes)
