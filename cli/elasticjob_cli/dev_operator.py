"""Brings the definitions of jobs and the operator to an embedded cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from elasticjob_localcluster import daemons
from elasticjob_localcluster.cluster import Cluster
from elasticjob_localcluster.crds import apply_crds, apply_policies
from elasticjob_localcluster.errors import LocalClusterError

OPERATOR = "operator"
"""The name of the operator's process among those of the cluster."""


def own_definitions() -> Path:
    """Return the folder with the definitions and policies of this package, or of its checkout."""
    packaged = Path(__file__).parent / "definitions"
    return packaged if packaged.is_dir() else Path(__file__).parents[2]


def check_source(source: Path, *needed: str) -> None:
    """Check that a folder has the project's definitions, policies and other needed files.

    Raises:
        LocalClusterError: a file is missing.
    """
    for path in ("crds/elasticjobs.yaml", "policies", *needed):
        if not (source / path).exists():
            raise LocalClusterError(
                f"{source.absolute()} has no {path}: name a checkout of the project with --source"
            )


async def apply_definitions(cluster: Cluster, source: Path) -> None:
    """Apply definitions and policies; return when the API server serves jobs."""
    await apply_crds(cluster.kubeconfig, source / "crds")
    await apply_policies(cluster.kubeconfig, source / "policies")


def start_operator(cluster: Cluster) -> None:
    """Start the operator, unless it runs, as a process of the cluster."""
    present = daemons.recorded(cluster.state).get(OPERATOR)
    if present is None or not present.alive():
        environ = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        command = [sys.executable, "-m", "elasticjob_operator.main"]
        daemons.start(OPERATOR, command, state=cluster.state, environ=environ)
