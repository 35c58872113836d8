"""Kills the processes of all containers when the node has ended, for whatever reason.

Runs as `python -m elasticjob_localcluster.node.process_guard PREFIX` with a pipe from the node as
its standard input. Nothing is written to the pipe; it is closed when the node ends.
"""

from __future__ import annotations

import signal
import subprocess
import sys

from elasticjob_localcluster.node.process_tree import kill_marked


def start(prefix: str) -> subprocess.Popen[bytes]:
    """Start the guard of the processes whose marker begins with `prefix`.

    It ends after the calling process.
    """
    command = [sys.executable, "-m", __name__, prefix]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def main() -> None:
    """Wait until the node has ended, then kill its processes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    kill_marked(sys.argv[1])


if __name__ == "__main__":
    main()
