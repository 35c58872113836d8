"""Sends signals to processes, and kills process trees until no process of them is left."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress

from elasticjob_processes.table import marker, members, process_table

_PAUSE_SECONDS = 0.02
_MOST_SECONDS = 10.0


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    """Send a signal to one process.

    Returns whether it was sent: not if the process has ended or belongs to another user.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
        return True
    return False


def kill_group(leader: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to the process group of a leader; ignore a group that has ended."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def kill_tree(root: int) -> None:
    """Kill a process and all its descendants.

    The process is killed first. Otherwise it might see the end of the others, and exit with 0.
    """
    found = members(process_table(), {root})
    for pid in sorted(found, key=lambda pid: pid != root):
        kill(pid)


def kill_descendants(spared: Collection[int]) -> bool:
    """Kill all descendants of this process; return whether there was a live one.

    `spared`: descendants that are not killed, with their own descendants.
    """
    table = process_table()
    descendants = members(table, {os.getpid()}) - {os.getpid()} - members(table, set(spared))
    found = False
    for pid in descendants:
        found = kill(pid) or found
    return found


def kill_marked(prefix: str) -> None:
    """Kill every process whose marker begins with `prefix`, with its descendants and its session.

    Repeats that until no such process is left, but at most for ten seconds: a process may hang in
    the kernel.
    """
    deadline = time.monotonic() + _MOST_SECONDS
    while time.monotonic() < deadline:
        table = process_table()
        marked = {pid for pid in table if (marker(pid) or "").startswith(prefix)}
        marked.discard(os.getpid())
        if not marked:
            return
        for pid in members(table, marked) - {os.getpid()}:
            kill(pid)
        time.sleep(_PAUSE_SECONDS)


def shell_code(code: int) -> int:
    """Return an exit code of `subprocess` as a shell reports it: 128 + signal for a signal."""
    return 128 - code if code < 0 else code
