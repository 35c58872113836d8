"""Stops a cluster's processes and removes its files."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from elasticjob_localcluster import daemons
from elasticjob_localcluster.controlplane import components

CLUSTER_FILE = "cluster.json"
"""Its port and whether it has a node; its presence marks a state directory as ours."""
DIRECTORIES = ("pki", "conf", "pids", "bin", "node", "etcd")
_FILES = ("kubeconfig", "etcd.sock", "etcd-peer.sock")


def tear_down(
    state: Path, children: Mapping[str, subprocess.Popen[bytes]], *, keep_logs: bool = False
) -> None:
    """Stop every process of the cluster in this directory and remove the files that belong to it.

    Args:
        state: the cluster's directory; the directory itself and its lock file stay.
        children: those of the processes that this process started, to be waited for.
        keep_logs: leave the logs for the user.
    """
    recorded = daemons.recorded(state)
    # The node first, while the API server still answers: it ends its pods' processes.
    daemons.stop(
        [recorded[name] for name in recorded if name not in components.CONTROL_PLANE], seconds=10
    )
    # The others have nothing to save: a graceful end would only wait for open watches.
    daemons.stop(
        [recorded[name] for name in recorded if name in components.CONTROL_PLANE], seconds=1
    )
    daemons.stop(daemons.find_processes(state), seconds=1)
    for child in children.values():
        child.wait(timeout=10)
    for name in DIRECTORIES:
        shutil.rmtree(state / name, ignore_errors=True)
    if not keep_logs:
        shutil.rmtree(state / "logs", ignore_errors=True)
    # The cluster file goes last, so that an interrupted removal can be repeated.
    for name in (*_FILES, CLUSTER_FILE):
        (state / name).unlink(missing_ok=True)


def remove_directory(state: Path) -> None:
    """Remove the directory if it contains only the lock file; the caller holds the lock.

    A process that waits for the lock notices the removal and creates both again.
    """
    (state / ".lock").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty: the rest is not ours
        state.rmdir()
