"""Finds out whether a command for jobs means a run on this machine. Imports little.

`local/NAME` always means a run. NAME alone means a run if one of this name exists and no option
names a cluster.
"""

from __future__ import annotations

import os

from elasticjob_client.errors import ClientError

from elasticjob_cli.echo import echo
from elasticjob_cli.run.folder import RunInfo, base_folder, find, runs

LOCAL = "local/"


def hint(name: str) -> str:
    """Return how to reach a run on this machine with this name; empty if there is none."""
    if find(base_folder(os.environ), name) is None:
        return ""
    return f"; {LOCAL}{name} is a run on this machine, for query, history, scale and stop"


def local_run(name: str, *cluster_options: object) -> RunInfo | None:
    """Return the run that a command means, and print that; None: it means an object of a cluster.

    Args:
        name: of the user's command line.
        cluster_options: values of the options that name a cluster or a namespace; None: not given.

    Raises:
        ClientError: the command means a run that does not exist.
    """
    base = base_folder(os.environ)
    if name.startswith(LOCAL):
        found = find(base, name.removeprefix(LOCAL))
        if found is None:
            there = ", ".join(info.name for info in runs(base)) or "none"
            raise ClientError(f"there is no run {name[:80]} on this machine; there are: {there}")
        return found
    found = None if any(option is not None for option in cluster_options) else find(base, name)
    if found is not None:
        echo(f"run {name} on this machine (-n NAMESPACE: in a cluster)", err=True)
    return found
