"""Kills the marked processes of a program when that program has ended, whatever ended it.

The guard has a pipe from the program as its standard input. The program writes nothing to it; the
kernel closes it when the program ends, also by SIGKILL.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Collection

from elasticjob_processes.killing import kill_marked


def start(
    prefix: str, *more: str, module: str = __name__, pass_fds: Collection[int] = ()
) -> subprocess.Popen[bytes]:
    """Start the guard of the processes whose marker begins with `prefix`.

    The main program of the module calls `guard` with the prefix; it may clean up afterwards. The
    guard keeps the descriptors open.
    """
    command = [sys.executable, "-P", "-m", module, prefix, *more]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, pass_fds=pass_fds, start_new_session=True
    )


def guard(prefix: str) -> None:
    """Wait until the program has ended, then kill its processes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    kill_marked(prefix)


if __name__ == "__main__":
    guard(sys.argv[1])
