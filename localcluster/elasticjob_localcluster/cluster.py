"""One embedded cluster: a real control plane, and unless told otherwise the process node, in one state directory.

with up(tmp_path / "cluster", control_plane_only=True) as cluster:
    subprocess.run([cluster.bin / "kubectl", "--kubeconfig", cluster.kubeconfig, "get", "pods"])
"""

from __future__ import annotations

import contextlib
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
from elasticjob_localcluster.errors import DevError
from elasticjob_localcluster.foreground import last_lines
from elasticjob_localcluster.progress_display import Progress
from elasticjob_localcluster.state_directory import cache_dir, locked, make_directory

_FACTS = "cluster.json"
_DIRECTORIES = ("pki", "conf", "pids", "bin", "node", "etcd")
_FILES = ("kubeconfig", "etcd.sock", "etcd-peer.sock")
_START_SECONDS = 120.0
Children = dict[str, "subprocess.Popen[bytes]"]


@dataclass(frozen=True)
class Cluster:
    """A cluster that was started, by this process or by another one."""

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
        return (*components.CONTROL_PLANE, components.NODE) if self.has_node else components.CONTROL_PLANE

    def running(self) -> dict[str, int | None]:
        """Return the process id of each of its processes; None for one that has ended."""
        recorded = daemons.recorded(self.state)
        return {
            name: recorded[name].pid if name in recorded and recorded[name].alive() else None for name in self.expected
        }

    def api_ready(self) -> bool:
        """Whether its API server serves."""
        return api_readiness.api_ready(self.state / "pki", self.port)

    def nodes(self) -> dict[str, bool]:
        """Return every node's name and whether it is ready."""
        return api_readiness.nodes(self.state / "pki", self.port)

    def troubles(self) -> list[str]:
        """Return what is wrong with it; nothing, when it is healthy."""
        ended = [f"{name} is not running" for name, pid in self.running().items() if pid is None]
        if ended or not self.api_ready():
            return ended or ["the API server is not ready"]
        if self.has_node and not self.nodes().get(components.NODE):
            return [f"the node {components.NODE} is not ready"]
        return []

    def down(self) -> None:
        """Stop its processes and remove its state; nothing is left but the programs in the cache."""
        down(self.state, children=self.children)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()


def find(state: Path) -> Cluster | None:
    """Return the cluster whose state is in this directory, healthy or not, or None when there is none."""
    state = state.resolve()
    try:
        facts = json.loads((state / _FACTS).read_text())
        return Cluster(state, facts["port"], facts["has_node"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        raise DevError(f"cannot read {state}: {error.strerror}; name another directory with --state") from error
    except (ValueError, KeyError, TypeError):
        return Cluster(state, 0, has_node=False)  # cut off while it was written: something to be cleaned up


def up(
    state: Path,
    *,
    control_plane_only: bool = False,
    port: int | None = None,
    capacity: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    environ: Mapping[str, str] | None = None,
) -> Cluster:
    """Start a cluster and return when it takes pods; one that is up and healthy is returned as it is.

    Whatever ends this early, also an interrupt, ends the processes that were started.

    Args:
        state: its directory; made when missing, refused when it holds anything else.
        control_plane_only: without a node; pods stay Pending.
        port: of the API server; a free one is chosen when None.
        capacity: amounts by resource that the node tells the scheduler instead of the machine's.
        progress: where to tell of the steps; stderr by default.
        environ: environment of the processes, and where programs and cache are looked for; ours by default.
    """
    state, progress = state.resolve(), progress or Progress()
    environ = dict(os.environ if environ is None else environ)
    make_directory(state, what="the state directory", remedy="name another with --state or $ELASTICJOB_STATE")
    _refuse_foreign(state)
    with locked(state / ".lock", seconds=1200, waiting=lambda: progress.say(f"waiting for another command in {state}")):
        present = find(state)
        if present is not None:
            troubles = present.troubles()
            if not troubles:
                return _as_wanted(present, control_plane_only=control_plane_only, port=port)
            progress.say(f"cleaning up after an earlier cluster in {state}: {', '.join(troubles)}")
        _tear_down(state, {})
        try:
            if port is not None:
                check_port(port)
            programs = find_programs(cache_dir(environ), environ, progress)
        except BaseException:
            _forget(state)
            raise
        cluster = Cluster(state, port or free_port(), has_node=not control_plane_only)
        try:
            with progress.step("starting the cluster") as tick:
                _start(cluster, programs, capacity or {}, environ, tick)
        except BaseException as error:
            failed = isinstance(error, DevError)
            _tear_down(state, cluster.children, keep_logs=failed)
            if not failed:
                _forget(state)
            raise
        return cluster


def down(state: Path, *, children: Children | None = None) -> bool:
    """Stop the cluster in this directory and remove its state; return whether there was one."""
    state = state.resolve()
    if find(state) is None and not daemons.marked(state):
        return False
    with locked(state / ".lock", seconds=1200, waiting=lambda: None):
        _tear_down(state, children or {})
        _forget(state)
    return True


def _refuse_foreign(state: Path) -> None:
    """Keep our hands off a directory that somebody uses for something else: `down` removes what is in it."""
    others = sorted(path.name for path in state.iterdir() if path.name not in (".lock", "logs"))
    if others and _FACTS not in others:
        raise DevError(f"{state} holds other files ({others[0]}): name a new or empty directory with --state")


def _as_wanted(present: Cluster, *, control_plane_only: bool, port: int | None) -> Cluster:
    remedy = f"run `elasticjob dev down --state {present.state}` first, or name another directory with --state"
    if port not in (None, present.port):
        raise DevError(f"the cluster in {present.state} is up on port {present.port}, not {port}: {remedy}")
    if not control_plane_only and not present.has_node:
        raise DevError(f"the cluster in {present.state} is up without a node: {remedy}")
    return present


def _start(
    cluster: Cluster,
    programs: Mapping[str, Path],
    capacity: Mapping[str, str],
    environ: Mapping[str, str],
    tick: Callable[[], None],
) -> None:
    state = cluster.state
    (state / _FACTS).write_text(json.dumps({"port": cluster.port, "has_node": cluster.has_node}))
    shutil.rmtree(state / "logs", ignore_errors=True)
    for name in (*_DIRECTORIES, "logs"):
        (state / name).mkdir(mode=0o700)
    for name, path in programs.items():
        (state / "bin" / name).symlink_to(path)
    make_pki(state / "pki", service_ip=components.SERVICE_IP, node=components.NODE)
    components.write_kubeconfigs(state, cluster.port)

    def launch(name: str, command: list[str]) -> None:
        cluster.children[name] = daemons.start(name, command, state=state, environ=environ)

    def wait_until(condition: Callable[[], bool], what: str) -> None:
        _wait_until(condition, what, cluster, tick)

    launch("etcd", components.etcd_command(programs))
    wait_until((state / "etcd.sock").is_socket, "etcd did not start")
    launch("kube-apiserver", components.api_server_command(programs, cluster.port))
    wait_until(cluster.api_ready, "the API server did not become ready")
    for name, command in components.controller_commands(programs).items():
        launch(name, command)
    if cluster.has_node:
        launch(components.NODE, components.node_command(state, capacity))
    wait_until(
        lambda: api_readiness.accepts_pods(state / "pki", cluster.port), "the controller manager did not become ready"
    )
    if cluster.has_node:
        wait_until(lambda: cluster.nodes().get(components.NODE, False), "the node did not become ready")


def _wait_until(condition: Callable[[], bool], what: str, cluster: Cluster, tick: Callable[[], None]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not condition():
        for name, child in cluster.children.items():
            if child.poll() is not None:
                raise DevError(
                    f"{name} ended with status {child.returncode}; its log is {cluster.state}/logs/{name}.log",
                    detail=_end_of_log(cluster.state, name),
                )
        if time.monotonic() > deadline:
            raise DevError(f"{what} in {_START_SECONDS:.0f} s; the logs are in {cluster.state}/logs")
        tick()
        time.sleep(0.05)


def _end_of_log(state: Path, name: str) -> str:
    return last_lines((state / "logs" / f"{name}.log").read_text(errors="replace"), 5)


def _tear_down(state: Path, children: Children, *, keep_logs: bool = False) -> None:
    recorded = daemons.recorded(state)
    # The node first, while the API server still answers: it ends its pods' processes.
    daemons.stop([recorded[name] for name in recorded if name not in components.CONTROL_PLANE], seconds=10)
    # The others have nothing to save: a graceful end would only wait for open watches.
    daemons.stop([recorded[name] for name in recorded if name in components.CONTROL_PLANE], seconds=1)
    daemons.stop(daemons.marked(state), seconds=1)
    for child in children.values():
        child.wait(timeout=10)
    for name in (*_DIRECTORIES, *(() if keep_logs else ("logs",))):
        shutil.rmtree(state / name, ignore_errors=True)
    # What says that the directory is ours goes last, so that an interrupted cleaning up can be done again.
    for name in (*_FILES, _FACTS):
        (state / name).unlink(missing_ok=True)


def _forget(state: Path) -> None:
    """Remove the directory too, with the lock that we hold; whoever waits for it sees that and makes them anew."""
    (state / ".lock").unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # not empty: the rest is not ours
        state.rmdir()
