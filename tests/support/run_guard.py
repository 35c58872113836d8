"""Ends what a killed test run leaves: clusters, operators, masters, agents and all else it started.

A fixture ends what it has started, but none does when a signal ends the run. So every process that
a run starts inherits a variable that names the run. When the run has ended, whatever ended it, the
guard ends the processes with this variable, and their descendants: by SIGTERM first, because the
process node then ends its containers and removes their memory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from elasticjob_localcluster import daemons
from elasticjob_localcluster.daemons import ProcessIdentity
from elasticjob_processes.table import members, process_table, variable

REPOSITORY = Path(__file__).parents[2]
VARIABLE = "ELASTICJOB_TEST_RUN"
_SECONDS = 10.0


def start_guard() -> Callable[[], None]:
    """Mark what this process starts from now on, and start the guard.

    Return a function that waits until nothing of it is left, at the end of the run.
    """
    os.environ[VARIABLE] = f"{os.getpid()}-{time.time_ns()}"
    # The kernel closes the pipe when this process and its forks have ended, if no line comes first.
    guard = subprocess.Popen(
        [sys.executable, "-m", __name__, os.environ[VARIABLE]],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        start_new_session=True,
    )

    def wait() -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):  # then it goes on by itself
            guard.communicate(b"\n", timeout=60)

    return wait


def _left(run: str) -> list[ProcessIdentity]:
    table = process_table()
    marked = {pid for pid in table if variable(pid, VARIABLE) == run} - {os.getpid()}
    return [ProcessIdentity(pid, table[pid].started) for pid in members(table, marked)]


def main() -> None:
    """Wait for the end of the run that the argument names, and end what is left of it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read(1)
    daemons.stop(_left(sys.argv[1]), seconds=_SECONDS)


if __name__ == "__main__":
    main()
