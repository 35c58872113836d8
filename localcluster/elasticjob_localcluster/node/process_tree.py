"""The processes of this machine.

Their ancestors, the containers they belong to, and reliable termination. A container's processes
are found by descent, by session, and by a variable that each of them inherits
(`environment.MARKER`). The node is a sub-reaper: orphaned processes of a container become children
of the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from elasticjob_localcluster.node.environment import MARKER

_PR_SET_CHILD_SUBREAPER = 36
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class ProcessEntry:
    """One line of the process table."""

    parent: int
    session: int
    resident: int
    """Bytes."""


def process_table() -> dict[int, ProcessEntry]:
    """Return every living process by its id."""
    table: dict[int, ProcessEntry] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (process := _read(int(entry.name))):
            table[int(entry.name)] = process
    return table


def _read(pid: int) -> ProcessEntry | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return ProcessEntry(
        parent=int(fields[1]), session=int(fields[3]), resident=int(fields[21]) * _PAGE
    )


def marker(pid: int) -> str | None:
    """Return the container marker in a process's environment; None without one."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    prefix = MARKER.encode() + b"="
    return next(
        (
            entry[len(prefix) :].decode()
            for entry in variables.split(b"\0")
            if entry.startswith(prefix)
        ),
        None,
    )


def proportional_size(pids: Iterable[int]) -> int:
    """Return the memory of some processes in bytes; shared pages count once."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, StopIteration):
            try:
                lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
                total += (
                    int(next(line for line in lines if line.startswith("Pss:")).split()[1]) * 1024
                )
            except PermissionError:  # an agent lets only root look into it
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return total


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to one process; ignore one that has ended or belongs to another user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def kill_marked(prefix: str, *, seconds: float = 10.0) -> None:
    """Kill every process whose marker begins with `prefix`, and all their descendants and sessions, until none is left.

    For processes whose ids are not known any more. Gives up after `seconds`: a process may hang in
    the kernel.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        table = process_table()
        targets = {
            pid for pid in table if pid != os.getpid() and (marker(pid) or "").startswith(prefix)
        }
        if not targets:
            return
        targets |= {pid for pid, process in table.items() if process.session in targets}
        while (
            more := {pid for pid, process in table.items() if process.parent in targets} - targets
        ):
            targets |= more
        for pid in targets:
            kill(pid)
        time.sleep(0.02)


class Reaper:
    """Waits for every child as soon as it ends, and kills every process whose container has ended.

    Must be made in the main thread of a program that waits for no children elsewhere.
    """

    def __init__(self) -> None:
        self._on_exit: dict[int, Callable[[int], None]] = {}
        self._living: set[str] = set()
        self._guests: dict[int, str] = {}
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def watch(
        self, pid: int, on_exit: Callable[[int], None], *, owner: str = "", guest_of: str = ""
    ) -> None:
        """Call `on_exit` with the wait status when a child ends.

        `owner`: the marker of the container that it leads. `guest_of`: of the one with which it
        ends at the latest.
        """
        self._on_exit[pid] = on_exit
        if owner:
            self._living.add(owner)
        if guest_of:
            self._guests[pid] = guest_of

    def container_ended(self, owner: str) -> None:
        """Kill every process that still has the marker of a container that has ended."""
        self._living.discard(owner)
        for pid, container in self._guests.items():
            if container == owner:
                kill(pid)
        self._sweep()

    def _reap(self) -> None:
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                break
            if found is None:
                break
            _, status = os.waitpid(found.si_pid, 0)
            self._guests.pop(found.si_pid, None)
            on_exit = self._on_exit.pop(found.si_pid, None)
            if on_exit is not None:
                on_exit(status)
        self._sweep()

    def _sweep(self) -> None:
        """Kill orphans whose container has ended.

        Their own children then become ours and are found the same way.
        """
        for pid in _children():
            if (
                pid not in self._on_exit
                and (owner := marker(pid)) is not None
                and owner not in self._living
            ):
                kill(pid)


def _children() -> list[int]:
    try:
        found = [
            (task / "children").read_text().split() for task in Path("/proc/self/task").iterdir()
        ]
        return [int(pid) for pids in found for pid in pids]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        me = os.getpid()
        return [pid for pid, process in process_table().items() if process.parent == me]
