"""One embedded cluster in one state directory.

A real control plane and, unless it is left out, the process node.
with up(tmp_path / "cluster", control_plane_only=True) as cluster:
    subprocess.run([cluster.bin / "kubectl", "--kubeconfig", cluster.kubeconfig, "get", "pods"])
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elasticjob_localcluster import daemons
from elasticjob_localcluster.controlplane import api_readiness, components
from elasticjob_localcluster.controlplane.binaries import find_programs
from elasticjob_localcluster.controlplane.pki import make_pki
from elasticjob_localcluster.controlplane.ports import check_port, free_port
from elasticjob_localcluster.errors import LocalClusterError
from elasticjob_localcluster.foreground import last_lines
from elasticjob_localcluster.progress_display import ProgressDisplay
from elasticjob_localcluster.state_directory import cache_dir, locked, make_directory
from elasticjob_localcluster.teardown import CLUSTER_FILE, DIRECTORIES, remove_directory, tear_down

_START_SECONDS = 120.0
_SILENT_SECONDS = 60.0
"""How long a cluster whose processes all run may give no answer."""
Children = dict[str, "subprocess.Popen[bytes]"]


@dataclass(frozen=True)
class Cluster:
    """A cluster that was started, by this process or by another one.

    Attributes:
        state: the directory of its files.
        port: of the API server, on 127.0.0.1.
        has_node: whether the process node belongs to it.
        children: by name, those of its processes that this process started.
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
        return (
            (*components.CONTROL_PLANE, components.NODE)
            if self.has_node
            else components.CONTROL_PLANE
        )

    def log_file(self, process: str) -> Path:
        """Return the log of one of its processes."""
        return daemons.log_file(self.state, process)

    def log_tail(self, process: str, lines: int) -> str:
        """Return the last lines of a process's log that are not empty."""
        return last_lines(self.log_file(process).read_text(errors="replace"), lines)

    def process_ids(self) -> dict[str, int | None]:
        """Return the process id of each of its processes; None for one that has ended."""
        recorded = daemons.recorded(self.state)
        return {
            name: recorded[name].pid if name in recorded and recorded[name].alive() else None
            for name in self.expected
        }

    def api_ready(self) -> bool:
        """Whether its API server serves."""
        return api_readiness.api_ready(self.state / "pki", self.port)

    def nodes(self) -> dict[str, bool]:
        """Return every node's name and whether it is ready."""
        return api_readiness.nodes(self.state / "pki", self.port)

    def problems(self) -> list[str]:
        """Return what is wrong with it; nothing, when it is healthy."""
        ended = [
            f"{name} is not running" for name, pid in self.process_ids().items() if pid is None
        ]
        if ended or not self.api_ready():
            return ended or ["the API server is not ready"]
        if self.has_node and not self.nodes().get(components.NODE):
            return [f"the node {components.NODE} is not ready"]
        return []

    def down(self) -> None:
        """Stop its processes and remove its state.

        Nothing is left but the programs in the cache.
        """
        down(self.state, children=self.children)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()


def find(state: Path) -> Cluster | None:
    """Return the cluster whose state is in this directory, healthy or not, or None when there is none."""
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
        return Cluster(
            state, 0, has_node=False
        )  # its writer was interrupted: `up` and `down` remove the rest


def up(
    state: Path,
    *,
    control_plane_only: bool = False,
    port: int | None = None,
    capacity: Mapping[str, str] | None = None,
    progress: ProgressDisplay | None = None,
    environ: Mapping[str, str] | None = None,
) -> Cluster:
    """Start a cluster and return when it takes pods.

    One that is up and healthy is returned as it is.
    Any exception, also an interrupt, stops the processes that were started.

    Args:
        state: its directory; made when missing, refused when it holds anything else.
        control_plane_only: without a node; pods stay Pending.
        port: of the API server; a free one is chosen when None.
        capacity: amounts by resource that the node reports to the scheduler in place of the machine's.
        progress: displays the steps; on stderr by default.
        environ: environment of the processes; also names programs and cache. This process's own by default.

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
            programs = find_programs(cache_dir(environ), environ, progress)
        except BaseException:
            remove_directory(state)
            raise
        cluster = Cluster(state, port or free_port(), has_node=not control_plane_only)
        try:
            with progress.step("starting the cluster") as tick:
                _start(cluster, programs, capacity or {}, environ, tick)
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
    """Refuse a directory that is used for something else: `down` would remove its files."""
    others = sorted(path.name for path in state.iterdir() if path.name not in (".lock", "logs"))
    if others and CLUSTER_FILE not in others:
        raise LocalClusterError(
            f"{state} holds other files ({others[0]}): name a new or empty directory with --state"
        )


def _lasting_problems(cluster: Cluster, progress: ProgressDisplay) -> list[str]:
    """Return what stays wrong with a cluster.

    One that is only busy is not taken from those who use it.
    """
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
    """Start controllers that have ended, if nothing else is wrong; return whether that was so.

    They keep no state: nobody who uses the cluster has to notice.
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
    """Refuse options that a cluster which is already up does not have."""
    remedy = f"run `elasticjob dev down --state {present.state}` first, or name another directory with --state"
    if port not in (None, present.port):
        raise LocalClusterError(
            f"the cluster in {present.state} is up on port {present.port}, not {port}: {remedy}"
        )
    if not control_plane_only and not present.has_node:
        raise LocalClusterError(f"the cluster in {present.state} is up without a node: {remedy}")


def _start(
    cluster: Cluster,
    programs: Mapping[str, Path],
    capacity: Mapping[str, str],
    environ: Mapping[str, str],
    tick: Callable[[], None],
) -> None:
    state = cluster.state
    (state / CLUSTER_FILE).write_text(
        json.dumps({"port": cluster.port, "has_node": cluster.has_node})
    )
    shutil.rmtree(state / "logs", ignore_errors=True)
    for name in (*DIRECTORIES, "logs"):
        (state / name).mkdir(mode=0o700)
    for name, path in programs.items():
        (state / "bin" / name).symlink_to(path)
    make_pki(state / "pki", service_ip=components.SERVICE_IP, node=components.NODE)
    components.write_kubeconfigs(state, cluster.port)

    def launch(name: str, command: list[str]) -> None:
        cluster.children[name] = daemons.start(name, command, state=state, environ=environ)

    def wait_until(condition: Callable[[], bool], problem: str) -> None:
        _wait_until(condition, problem, cluster, tick)

    launch("etcd", components.etcd_command(programs))
    wait_until((state / "etcd.sock").is_socket, "etcd did not start")
    launch("kube-apiserver", components.api_server_command(programs, cluster.port))
    wait_until(cluster.api_ready, "the API server did not become ready")
    for name, command in components.controller_commands(programs).items():
        launch(name, command)
    if cluster.has_node:
        launch(components.NODE, components.node_command(state, capacity))
    wait_until(
        lambda: api_readiness.accepts_pods(state / "pki", cluster.port),
        "the controller manager did not become ready",
    )
    if cluster.has_node:
        wait_until(
            lambda: cluster.nodes().get(components.NODE, False), "the node did not become ready"
        )


def _wait_until(
    condition: Callable[[], bool], problem: str, cluster: Cluster, tick: Callable[[], None]
) -> None:
    """Wait until a condition holds; raise an error with `problem` after the time limit."""
    deadline = time.monotonic() + _START_SECONDS
    while not condition():
        for name, child in cluster.children.items():
            if child.poll() is not None:
                raise LocalClusterError(
                    f"{name} ended with status {child.returncode}; its log is {cluster.log_file(name)}",
                    detail=cluster.log_tail(name, 5),
                )
        if time.monotonic() > deadline:
            raise LocalClusterError(
                f"{problem} in {_START_SECONDS:.0f} s; the logs are in {cluster.state}/logs"
            )
        tick()
        time.sleep(0.05)
