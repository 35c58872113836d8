"""Finds out when a training process below torchrun, or another launcher, has failed.

Torchrun notices a failure up to an interval later, and ends even later. Meanwhile the processes on
other nodes fail because they have lost their peer, so the torchruns of all nodes end at the same
time. Only the exits of the processes show which node failed first. They are children of torchrun,
not of the agent; the kernel reports their exits by pidfds. torchrun reports the exit code of the
process itself; Accelerate and DeepSpeed end with another code.
"""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Callable, Collection
from pathlib import Path

import psutil
from elasticjob_processes.killing import shell_code

_LOOK_SECONDS = 1.0
_EXIT_CODE = 49  # the field of /proc/PID/stat, after the program's name


class RankWatch:
    """Watches the processes that the launcher of this member has started."""

    def __init__(
        self, size: int, mark: str, in_standby: Callable[[], Collection[int]] = tuple
    ) -> None:
        """Watch the processes that a launcher starts, which inherit the variable `mark` from it.

        A torchrun among those in standby has children.
        """
        self.failed_at: float | None = None
        """The time of the first failure of the present processes, by the monotonic clock."""
        self.code = 0
        """The exit code of that failure as a shell reports it, or 0: it is not known."""
        self._size = size
        self._mark = mark
        self._in_standby = in_standby
        self._watched: dict[int, int] = {}
        self._one_has_ended = asyncio.Event()

    async def run(self) -> None:
        """Watch until this is cancelled: torchrun may start its processes again."""
        try:
            while True:
                for pid in await asyncio.to_thread(processes, self._mark, self._in_standby()):
                    self._watch(pid)
                if len(self._watched) >= self._size:
                    self._one_has_ended.clear()
                    await self._one_has_ended.wait()
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            for pid in list(self._watched):
                self._forget(pid)

    def some_run(self) -> bool:
        """Return whether one of the processes runs, although the launcher may have ended."""
        poll = select.poll()
        for number in self._watched.values():
            poll.register(number, select.POLLIN)
        return len(poll.poll(0)) < len(self._watched)

    def _watch(self, pid: int) -> None:
        if pid in self._watched:
            return
        try:
            self._watched[pid] = os.pidfd_open(pid)
        except OSError:  # it has just ended, or the kernel has no pidfds
            return
        self.failed_at = None  # torchrun has restarted its processes after that failure
        asyncio.get_running_loop().add_reader(self._watched[pid], self._ended, pid)

    def _ended(self, pid: int) -> None:
        self._forget(pid)
        status = _exit_status(pid)
        if self.failed_at is None and status != 0:
            self.failed_at = time.monotonic()
            self.code = shell_code(os.waitstatus_to_exitcode(status)) if status else 0
        self._one_has_ended.set()

    def _forget(self, pid: int) -> None:
        number = self._watched.pop(pid)
        asyncio.get_running_loop().remove_reader(number)
        os.close(number)


def processes(mark: str, in_standby: Collection[int]) -> list[int]:
    """Return the living processes that a running launcher below this process has started itself."""
    marked = {}
    for process in psutil.Process().children(recursive=True):
        try:
            if mark in process.environ():
                marked[process.pid] = process.ppid()
        except (psutil.Error, OSError):
            continue
    # An orphan of a rank, such as a data loader, is now a child of the agent.
    no_torchrun = {*marked, *in_standby, os.getpid()}
    return [pid for pid, parent in marked.items() if parent not in no_torchrun]


def _exit_status(pid: int) -> int | None:
    """Return how a process has ended, 0 for success; None if torchrun has reaped it."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        return int(text.rpartition(")")[2].split()[_EXIT_CODE])
    except (OSError, ValueError, IndexError):
        return None
