"""Ends what is left of a run, and removes its folder, when the command has ended, for whatever reason.

Runs as `python -m elasticjob_cli.run.guard MARKER FOLDER` with a pipe from the command as its
standard input. Nothing is written to the pipe; it is closed when the command ends, also by SIGKILL.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from elasticjob_processes import guard

from elasticjob_cli.run.folder import Claim, remove


def start(marker: str, claim: Claim) -> subprocess.Popen[bytes]:
    """Start the guard of the processes whose marker begins so; it ends after the calling process.

    It keeps the folder's lock until it has removed the folder, so that no other run of this name
    begins before.
    """
    return guard.start(marker, str(claim.folder), module=__name__, pass_fds=[claim.lock])


def main() -> None:
    """Wait until the command has ended, then clean up."""
    guard.guard(sys.argv[1])
    remove(Path(sys.argv[2]))


if __name__ == "__main__":
    main()
