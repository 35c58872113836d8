"""Ends what is left of a run, and removes its folder, when the command has ended, for whatever reason.

Runs as `python -m elasticjob_cli.run.guard MARKER FOLDER` with a pipe from the command as its
standard input. Nothing is written to the pipe; it is closed when the command ends, also by SIGKILL.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from elasticjob_localcluster.node.process_tree import kill_marked

from elasticjob_cli.run.folder import Claim, remove


def start(marker: str, claim: Claim) -> subprocess.Popen[bytes]:
    """Start the guard of the processes whose marker begins so; it ends after the calling process.

    It keeps the folder's lock until it has removed the folder, so that no other run of this name
    begins before.
    """
    command = [sys.executable, "-P", "-m", __name__, marker, str(claim.folder)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, pass_fds=[claim.lock], start_new_session=True
    )


def main() -> None:
    """Wait until the command has ended, then clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    kill_marked(sys.argv[1])
    remove(Path(sys.argv[2]))


if __name__ == "__main__":
    main()
