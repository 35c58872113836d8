"""Runs programs to their end, and keeps what they print."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from elasticjob_localcluster.cluster import Cluster


def ran(
    *command: object,
    cwd: Path | None = None,
    given: str | None = None,
    environment: Mapping[str, str] | None = None,
    **variables: object,
) -> subprocess.CompletedProcess[str]:
    """Run a command with a text as its input, and with more variables of the environment.

    `environment`: all variables that it has; None for those of the tests.
    """
    environ = dict(os.environ if environment is None else environment)
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        input=given,
        env=environ | {name: str(value) for name, value in variables.items()},
        capture_output=True,
        text=True,
        timeout=420,
        check=False,
    )


def kubectl(cluster: Cluster, namespace: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run kubectl in a namespace of a cluster."""
    access = (f"--kubeconfig={cluster.kubeconfig}", "-n", namespace)
    return ran(cluster.bin / "kubectl", *access, *arguments)


def python(
    script: str, *arguments: object, **variables: object
) -> subprocess.CompletedProcess[str]:
    """Run a script of this Python, with more variables of the environment."""
    return ran(sys.executable, "-c", script, *arguments, **variables)  # type: ignore[arg-type]
