"""Ends every process of a container when the container ends.

Each process of a container inherits its marker, and the node is a sub-reaper: orphaned processes of
a container become children of the node.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from elasticjob_processes.killing import kill
from elasticjob_processes.reaper import ChildReaper
from elasticjob_processes.table import marker, process_table


class ContainerReaper:
    """Reaps every child of the node, and kills the processes whose container has ended."""

    def __init__(self) -> None:
        self._children = ChildReaper(on_reaped=self._kill_orphans)
        self._running: set[str] = set()
        self._guests: dict[int, str] = {}

    def watch(
        self, pid: int, on_exit: Callable[[int], None], *, owner: str = "", guest_of: str = ""
    ) -> None:
        """Call `on_exit` with the exit code of a child, negative after a signal, when it ends.

        It is the first process of the container with the marker `owner`, or a further one that runs
        in the container of `guest_of`.
        """

        def exited(code: int) -> None:
            self._guests.pop(pid, None)
            on_exit(code)

        self._children.watch(pid, exited)
        if owner:
            self._running.add(owner)
        if guest_of:
            self._guests[pid] = guest_of

    def container_ended(self, owner: str) -> None:
        """Kill every process that still has the marker of a container that has ended."""
        self._running.discard(owner)
        for pid, container in self._guests.items():
            if container == owner:
                kill(pid)
        self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Kill orphans whose container has ended.

        Their own children then become children of the node and are found the same way.
        """
        for pid in _children():
            if pid in self._children.watched:
                continue
            owner = marker(pid)
            if owner is not None and owner not in self._running:
                kill(pid)


def _children() -> list[int]:
    try:
        texts = [(task / "children").read_text() for task in Path("/proc/self/task").iterdir()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        own = os.getpid()
        return [pid for pid, process in process_table().items() if process.parent == own]
    return [int(pid) for text in texts for pid in text.split()]
