"""The process table of this machine, and the trees in it.

The processes of a container are found by descent, by session, and by the variable
`names.ENV_CONTAINER`, the *marker*, which each of them inherits.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from elasticjob_api import names

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PF_EXITING = 0x4
"""The flag of Linux for a process that is ending."""


@dataclass(frozen=True)
class ProcessEntry:
    """One line of the process table.

    Attributes:
        parent: the process id of its parent.
        session: the process id of its session's leader.
        resident: its resident memory in bytes.
        started: the kernel's ticks from boot to its start.
    """

    parent: int
    session: int
    resident: int
    started: int = 0


def process_table() -> dict[int, ProcessEntry]:
    """Return every live process by its id; zombies are not live."""
    table: dict[int, ProcessEntry] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            process = read_process(int(entry.name))
            if process is not None:
                table[int(entry.name)] = process
    return table


def read_process(pid: int) -> ProcessEntry | None:
    """Return one process; None if it is not live."""
    fields = _fields(pid)
    if fields is None:
        return None
    return ProcessEntry(
        parent=int(fields[1]),
        session=int(fields[3]),
        resident=int(fields[21]) * _PAGE_BYTES,
        started=int(fields[19]),
    )


def is_dying(pid: int) -> bool:
    """Return whether a process is not live, or has been killed and not ended yet.

    The latter takes a while on a busy node.
    """
    fields = _fields(pid)
    if fields is None:
        return True
    flags = int(fields[6])
    pending = int(fields[28])
    return bool(flags & _PF_EXITING or pending & 1 << (signal.SIGKILL - 1))


def _fields(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/PID/stat from the third one on; None if it is not live."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The second field is the program's name in brackets, which may contain blanks and brackets.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else fields


def variable(pid: int, name: str) -> str | None:
    """Return a variable of the environment that a process was started with; None without it."""
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or belongs to another user
        return None
    prefix = name.encode() + b"="
    for entry in entries:
        if entry.startswith(prefix):
            return os.fsdecode(entry.removeprefix(prefix))
    return None


def marker(pid: int) -> str | None:
    """Return the container marker of a process; None without one."""
    return variable(pid, names.ENV_CONTAINER)


def trees(table: dict[int, ProcessEntry], roots: Set[int]) -> dict[int, dict[int, ProcessEntry]]:
    """Return for each root the processes that descend from it or belong to its session.

    A process below two roots belongs to the nearest.
    """
    found: dict[int, dict[int, ProcessEntry]] = {root: {} for root in roots}
    root_of: dict[int, int | None] = {root: root for root in roots}
    for pid in table:
        path = []
        at: int = pid
        while at not in root_of:
            process = table.get(at)
            path.append(at)
            if process is None:
                root_of[at] = None
            elif process.session in roots:
                root_of[at] = process.session
            else:
                at = process.parent
        for ancestor in path:
            root_of[ancestor] = root_of[at]
        root = root_of[pid]
        if root is not None:
            found[root][pid] = table[pid]
    return found


def members(table: dict[int, ProcessEntry], roots: Set[int]) -> set[int]:
    """Return the live processes among the roots, their descendants and their sessions."""
    return {pid for tree in trees(table, roots).values() for pid in tree}
