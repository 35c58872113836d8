"""Brings the definitions of jobs and the operator to an embedded cluster."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from elasticjob_api import names
from elasticjob_api.times import parse_time
from elasticjob_kube.errors import NotFound, TryLater
from elasticjob_kube.resources import LEASES
from elasticjob_kube.session import Kube, connect
from elasticjob_localcluster import daemons
from elasticjob_localcluster.cluster import Cluster
from elasticjob_localcluster.crds import apply_crds, apply_policies
from elasticjob_localcluster.errors import LocalClusterError

OPERATOR = "operator"
"""The name of the operator's process among those of the cluster."""
_NAMESPACE = "default"
"""Of the operator's lease."""
_LEAD_SECONDS = 60.0
"""An operator that was killed has kept its lease for up to 15 s."""


def own_definitions() -> Path:
    """Return the folder with the definitions and policies of this package, or of its checkout."""
    packaged = Path(__file__).parents[1] / "definitions"
    return packaged if packaged.is_dir() else Path(__file__).parents[3]


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


async def start_operator(cluster: Cluster) -> None:
    """Start the operator, unless it runs, as a process of the cluster; return when it leads.

    Raises:
        LocalClusterError: it has exited, or does not lead in time.
    """
    present = daemons.recorded(cluster.state).get(OPERATOR)
    if present is not None and present.alive():
        return
    environ = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
    command = [sys.executable, "-m", "elasticjob_operator.main", "--lease-namespace", _NAMESPACE]
    began = time.time()
    process = daemons.start(OPERATOR, command, state=cluster.state, environ=environ)
    try:
        async with (
            asyncio.timeout(_LEAD_SECONDS),
            connect(user_agent="elasticjob-dev", kubeconfig=cluster.kubeconfig) as kube,
        ):
            while not await _leads(kube, began):
                if process.poll() is not None:
                    raise _failed(cluster, f"ended with status {process.returncode}")
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise _failed(cluster, f"does not lead after {_LEAD_SECONDS:.0f} s") from None


async def _leads(kube: Kube, began: float) -> bool:
    """Return whether an operator has acquired or renewed the lease since a time."""
    try:
        lease = await kube.get(LEASES, _NAMESPACE, names.OPERATOR)
    except (NotFound, TryLater):
        return False
    spec = lease.get("spec") or {}
    return bool(spec.get("holderIdentity")) and parse_time(spec["renewTime"]) >= began


def _failed(cluster: Cluster, problem: str) -> LocalClusterError:
    log = f"its log is {cluster.log_file(OPERATOR)}"
    return LocalClusterError(f"the operator {problem}; {log}", detail=cluster.log_tail(OPERATOR, 5))
