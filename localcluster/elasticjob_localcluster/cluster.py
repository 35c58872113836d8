"""Starts, finds and stops embedded clusters, each in its state directory.

A cluster is a real control plane and, unless it is excluded, the process node.

with up(tmp_path / "cluster", control_plane_only=True) as cluster:
    subprocess.run([cluster.bin / "kubectl", "--kubeconfig", cluster.kubeconfig, "get", "pods"])
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elasticjob_localcluster import daemons, lifecycle
from elasticjob_localcluster.controlplane import api_readiness, components
from elasticjob_localcluster.controlplane.binaries import find_programs
from elasticjob_localcluster.controlplane.ports import check_port, free_port
from elasticjob_localcluster.controlplane.programs import KUBECTL
from elasticjob_localcluster.errors import LocalClusterError
from elasticjob_localcluster.lifecycle import CLUSTER_FILE, Children, remove_directory, tear_down
from elasticjob_localcluster.progress_display import ProgressDisplay
from elasticjob_localcluster.state_directory import cache_dir, locked, make_directory

_SILENT_SECONDS = 60.0
"""The time that a cluster whose processes all run may be unresponsive."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that was started, by this process, which has its `children`, or by another one.

    The port is that of the API server, on 127.0.0.1.
    """

    state: Path
    port: int
    has_node: bool
    children: Children = field(default_factory=dict, repr=False, compare=False)

    @property
    def kubeconfig(self) -> Path:
        """The configuration of a user who may do everything."""
        return self.state / "kubeconfig"

    @property
    def bin(self) -> Path:
        """A directory with kubectl, in the version of this cluster."""
        return self.state / "bin"

    @property
    def expected(self) -> tuple[str, ...]:
        """The names of its processes."""
        if self.has_node:
            return (*components.CONTROL_PLANE, components.NODE)
        return components.CONTROL_PLANE

    def log_file(self, process: str) -> Path:
        """Return the log of one of its processes."""
        return daemons.log_file(self.state, process)

    def log_tail(self, process: str, lines: int) -> str:
        """Return the last lines of a process's log that are not empty."""
        return daemons.log_tail(self.state, process, lines)

    def process_ids(self) -> dict[str, int | None]:
        """Return the process id of each of its processes; None for one that has ended."""
        ids: dict[str, int | None] = dict.fromkeys(self.expected)
        for name, process in daemons.recorded(self.state).items():
            if name in ids and process.alive():
                ids[name] = process.pid
        return ids

    def api_ready(self) -> bool:
        """Return whether its API server serves."""
        return api_readiness.api_ready(self.state / "pki", self.port)

    def nodes(self) -> dict[str, bool]:
        """Return every node's name and whether it is ready."""
        return api_readiness.nodes(self.state / "pki", self.port)

    def problems(self) -> list[str]:
        """Return the problems of the cluster; an empty list if it is healthy."""
        ended = [
            f"{name} is not running" for name, pid in self.process_ids().items() if pid is None
        ]
        if ended or not self.api_ready():
            return ended or ["the API server is not ready"]
        if self.has_node and not self.nodes().get(components.NODE):
            return [f"the node {components.NODE} is not ready"]
        return []

    def down(self) -> None:
        """Stop its processes and remove its state; only the programs in the cache remain."""
        down(self.state, children=self.children)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()


def find(state: Path) -> Cluster | None:
    """Return the cluster with its state in this directory, healthy or not; None without one."""
    state = state.resolve()
    try:
        stored = json.loads((state / CLUSTER_FILE).read_text())
        return Cluster(state, stored["port"], stored["has_node"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise LocalClusterError(
            f"cannot read {state}: {error.strerror}; name another directory with --state"
        ) from error
    except (ValueError, KeyError, TypeError):
        # Its writer was interrupted; `up` and `down` remove the rest.
        return Cluster(state, 0, has_node=False)


def up(
    state: Path,
    *,
    control_plane_only: bool = False,
    port: int | None = None,
    capacity: Mapping[str, str] | None = None,
    kubectl_on_demand: bool = False,
    progress: ProgressDisplay | None = None,
    environ: Mapping[str, str] | None = None,
) -> Cluster:
    """Start a cluster and return when it accepts pods; return a healthy one as it is.

    Any exception, also an interrupt, stops the started processes.

    Args:
        state: the directory of the cluster, created if missing; refused if it contains other files.
        control_plane_only: start no node; pods stay Pending.
        port: the port of the API server; by default a free one.
        capacity: the amounts by resource that the node reports instead of the machine's.
        kubectl_on_demand: a missing kubectl that would have to be built is built at its first call.
        progress: displays the steps; by default on stderr.
        environ: the environment of the processes, which also names programs and cache; by default
            that of this process.

    Raises:
        LocalClusterError: it cannot be started.
    """
    state = state.resolve()
    progress = progress or ProgressDisplay()
    environ = dict(os.environ if environ is None else environ)
    make_directory(
        state, what="the state directory", remedy="name another with --state or $ELASTICJOB_STATE"
    )
    _refuse_other_files(state)
    waiting = f"waiting for another command in {state}"
    with locked(state / ".lock", seconds=1200, on_wait=lambda: progress.write(waiting)):
        present = find(state)
        if present is not None:
            problems = _lasting_problems(present, progress)
            if not problems or _restart_controllers(present, environ, progress):
                _check_options(present, control_plane_only=control_plane_only, port=port)
                return present
            progress.write(
                f"cleaning up after an earlier cluster in {state}: {', '.join(problems)}"
            )
        tear_down(state, {})
        try:
            if port is not None:
                check_port(port)
            cache = cache_dir(environ)
            deferred = (KUBECTL,) if kubectl_on_demand else ()
            programs = find_programs(cache, environ, progress, deferred=deferred)
        except BaseException:
            remove_directory(state)
            raise
        cluster = Cluster(state, port or free_port(), has_node=not control_plane_only)
        try:
            with progress.step("starting the cluster") as tick:
                lifecycle.start(
                    state,
                    cluster.port,
                    has_node=cluster.has_node,
                    programs=programs,
                    cache=cache,
                    capacity=capacity or {},
                    environ=environ,
                    children=cluster.children,
                    tick=tick,
                )
        except BaseException as error:
            failed = isinstance(error, LocalClusterError)
            tear_down(state, cluster.children, keep_logs=failed)
            if not failed:
                remove_directory(state)
            raise
        return cluster


def down(state: Path, *, children: Children | None = None) -> bool:
    """Stop the cluster in this directory and remove its state; return whether there was one."""
    state = state.resolve()
    if find(state) is None and not daemons.find_processes(state):
        return False
    with locked(state / ".lock", seconds=1200, on_wait=lambda: None):
        tear_down(state, children or {})
        remove_directory(state)
    return True


def _refuse_other_files(state: Path) -> None:
    """Refuse a directory with other files, which `down` would remove."""
    others = sorted(path.name for path in state.iterdir() if path.name not in (".lock", "logs"))
    if others and CLUSTER_FILE not in others:
        raise LocalClusterError(
            f"{state} holds other files ({others[0]}): name a new or empty directory with --state"
        )


def _lasting_problems(cluster: Cluster, progress: ProgressDisplay) -> list[str]:
    """Return the problems that a cluster does not overcome: one that is only busy is healthy."""
    deadline = time.monotonic() + _SILENT_SECONDS
    waiting = False
    while (problems := cluster.problems()) and None not in cluster.process_ids().values():
        if time.monotonic() > deadline:
            break
        if not waiting:
            progress.write(f"waiting for the cluster in {cluster.state}: {', '.join(problems)}")
        waiting = True
        time.sleep(0.2)
    return problems


def _restart_controllers(
    cluster: Cluster, environ: Mapping[str, str], progress: ProgressDisplay
) -> bool:
    """Restart controllers that have ended, if that is the only problem; return whether it was.

    They keep no state, so users of the cluster notice nothing.
    """
    ended = [name for name, pid in cluster.process_ids().items() if pid is None]
    if not set(ended) <= set(components.CONTROLLERS) or not cluster.api_ready():
        return False
    commands = components.controller_commands(
        {name: cluster.bin / name for name in components.CONTROLLERS}
    )
    for name in ended:
        progress.write(f"{name} is not running: starting it again")
        cluster.children[name] = daemons.start(
            name, commands[name], state=cluster.state, environ=environ
        )
    return bool(ended)


def _check_options(present: Cluster, *, control_plane_only: bool, port: int | None) -> None:
    """Refuse options that contradict the cluster that is already up."""
    remedy = (
        f"run `elasticjob dev down --state {present.state}` first, "
        "or name another directory with --state"
    )
    if port not in (None, present.port):
        raise LocalClusterError(
            f"the cluster in {present.state} is up on port {present.port}, not {port}: {remedy}"
        )
    if control_plane_only == present.has_node:
        raise LocalClusterError(
            f"the cluster in {present.state} is up with{'' if present.has_node else 'out'} a node: "
            f"{remedy}"
        )
