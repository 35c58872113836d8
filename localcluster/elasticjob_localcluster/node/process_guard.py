"""Outlives the node by a moment: when the node is gone, however it went, its containers' processes are killed.

Runs as `python -m elasticjob_localcluster.node.process_guard PREFIX` with a pipe from the node as its
standard input. The end of the pipe is the end of the node; nothing is ever written to it.
"""

from __future__ import annotations

import signal
import subprocess
import sys

from elasticjob_localcluster.node.process_tree import kill_marked


def start(prefix: str) -> subprocess.Popen[bytes]:
    """Start the keeper of the processes whose marker begins with `prefix`; it ends with the calling process."""
    command = [sys.executable, "-m", __name__, prefix]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def main() -> None:
    """Wait for the node's end, then kill."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    kill_marked(sys.argv[1])


if __name__ == "__main__":
    main()
