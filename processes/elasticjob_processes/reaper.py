"""Reaps all children of a program in one place.

Two calls of `waitpid` in one program could each take the exit code that the other waits for.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Callable, Container

_PR_SET_CHILD_SUBREAPER = 36


class ChildReaper:
    """Waits for every child as soon as it ends, also for orphaned descendants of this process."""

    def __init__(self, *, on_reaped: Callable[[], None] = lambda: None) -> None:
        """Become a sub-reaper, and reap from now on; raises OSError if the kernel refuses.

        Needs the event loop of the main thread. No other part of the program may wait for children.
        `on_reaped` is called after each round.
        """
        self._on_exit: dict[int, Callable[[int], None]] = {}
        self._on_reaped = on_reaped
        if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap)

    def watch(self, pid: int, on_exit: Callable[[int], None]) -> None:
        """Call `on_exit` with the exit code of a child, negative after a signal, when it ends."""
        self._on_exit[pid] = on_exit

    @property
    def watched(self) -> Container[int]:
        """The process ids of the children that `watch` was called for and that run."""
        return self._on_exit

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            on_exit = self._on_exit.pop(pid, None)
            if on_exit is not None:
                on_exit(os.waitstatus_to_exitcode(status))
        self._on_reaped()
