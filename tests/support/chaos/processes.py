"""Finds the processes of a pod by its UID, with which the node marks them."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass

from elasticjob_processes.table import marker, process_table


@dataclass(frozen=True)
class PodProcesses:
    """The processes of one pod: its first one (the master, or the agent), and those below it."""

    first: int
    others: tuple[int, ...]


def of_pods() -> dict[str, PodProcesses]:
    """Return the processes of all pods on this machine, by UID of the pod."""
    table = process_table()
    found = dict[str, list[int]]()
    for pid in table:
        if owner := marker(pid):
            found.setdefault(owner.split("/")[1], []).append(pid)
    pods = {}
    for uid, pids in found.items():
        leaders = [
            pid for pid in pids if table[pid].session == pid and table[pid].parent not in pids
        ]
        if leaders:
            first = min(leaders)
            pods[uid] = PodProcesses(first, tuple(pid for pid in sorted(pids) if pid != first))
    return pods


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return whether the process still existed."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False
