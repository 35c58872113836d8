"""Stands in for kubectl until it is first called: it is built then, as only some users call it.

The embedded cluster itself does not need kubectl, whose build takes about a minute.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from elasticjob_localcluster.controlplane.binaries import FINDING, find_programs
from elasticjob_localcluster.controlplane.programs import KUBECTL
from elasticjob_localcluster.errors import LocalClusterError
from elasticjob_localcluster.progress_display import ProgressDisplay


def write_launcher(path: Path, cache: Path) -> None:
    """Write a script that builds kubectl at its first call, and is replaced by a link to it."""
    command = shlex.join([sys.executable, "-m", __name__, str(cache)])
    # It is not an installed kubectl for another cluster that looks for one.
    path.write_text(f'#!/bin/sh\n[ -z "${FINDING}" ] || exit 1\nexec {command} "$0" "$@"\n')
    path.chmod(0o755)


def main() -> None:
    """Build kubectl, put it in the place of the script, and become it."""
    cache, script, *arguments = sys.argv[1:]
    progress = ProgressDisplay()
    try:
        kubectl = find_programs(Path(cache), os.environ, progress, (KUBECTL,))[KUBECTL.name]
    except LocalClusterError as error:
        progress.write(f"error: {error}")
        progress.write(error.detail)
        sys.exit(1)
    link = Path(f"{script}.{os.getpid()}")
    link.symlink_to(kubectl)
    link.replace(script)
    os.execv(kubectl, [script, *arguments])  # noqa: S606 (no shell is wanted)


if __name__ == "__main__":
    main()
