"""Puts programs on the PATH of a launcher: `ssh` to its workers, and `discover_hosts`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

WORKER = "elasticjob_agent.remote_shell.worker"
DISCOVER_HOSTS = "elasticjob_agent.discover_hosts"
_MODULES = {"ssh": "elasticjob_agent.remote_shell.ssh", "discover_hosts": DISCOVER_HOSTS}


def command(module: str) -> list[str]:
    """Return the command that runs a module of the agent by this interpreter."""
    return [sys.executable, "-I", *(["-S"] if sys.flags.no_site else []), "-m", module]


def is_worker(command: Sequence[str]) -> bool:
    """Return whether a command is the worker of a remote shell, which ends by itself."""
    return command[-1] == WORKER


def on_path(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Write the programs into a folder, and return the environment with it first on the PATH."""
    for name, module in _MODULES.items():
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {shlex.join(command(module))} "$@"\n')
        program.chmod(0o700)
    return {**environment, "PATH": f"{folder}{os.pathsep}{environment.get('PATH', os.defpath)}"}
