"""Starts the processes of a cluster in their order, and stops them and removes their files."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from elasticjob_localcluster import daemons
from elasticjob_localcluster.controlplane import api_readiness, components
from elasticjob_localcluster.controlplane.kubectl import write_launcher
from elasticjob_localcluster.controlplane.pki import make_pki
from elasticjob_localcluster.errors import LocalClusterError

CLUSTER_FILE = "cluster.json"
"""Its port and whether it has a node; its presence marks a state directory as ours."""
Children = dict[str, "subprocess.Popen[bytes]"]
_DIRECTORIES = ("pki", "conf", "pids", "bin", "node", "etcd")
_FILES = ("kubeconfig", "etcd.sock", "etcd-peer.sock")
_START_SECONDS = 120.0


def start(
    state: Path,
    port: int,
    *,
    has_node: bool,
    programs: Mapping[str, Path],
    cache: Path,
    capacity: Mapping[str, str],
    environ: Mapping[str, str],
    children: Children,
    tick: Callable[[], None],
) -> None:
    """Start a cluster in its empty directory, and return when it accepts pods.

    A kubectl that is missing in `programs` is built in the cache at its first call. `children` gets
    every started process, also if an error is raised.
    """
    (state / CLUSTER_FILE).write_text(json.dumps({"port": port, "has_node": has_node}))
    shutil.rmtree(state / "logs", ignore_errors=True)
    for name in (*_DIRECTORIES, "logs"):
        (state / name).mkdir(mode=0o700)
    for name, path in programs.items():
        (state / "bin" / name).symlink_to(path)
    if "kubectl" not in programs:
        write_launcher(state / "bin" / "kubectl", cache)
    pki = state / "pki"
    make_pki(pki, service_ip=components.SERVICE_IP, node=components.NODE)
    components.write_kubeconfigs(state, port)

    def launch(name: str, command: list[str]) -> None:
        children[name] = daemons.start(name, command, state=state, environ=environ)

    def wait_until(condition: Callable[[], bool], problem: str) -> None:
        _wait_until(condition, problem, state, children, tick)

    launch("etcd", components.etcd_command(programs))
    wait_until((state / "etcd.sock").is_socket, "etcd did not start")
    launch("kube-apiserver", components.api_server_command(programs, port))
    wait_until(lambda: api_readiness.api_ready(pki, port), "the API server did not become ready")
    for name, command in components.controller_commands(programs).items():
        launch(name, command)
    if has_node:
        launch(components.NODE, components.node_command(state, capacity))
    wait_until(
        lambda: api_readiness.accepts_pods(pki, port),
        "the controller manager did not become ready",
    )
    if has_node:
        wait_until(
            lambda: api_readiness.nodes(pki, port).get(components.NODE, False),
            "the node did not become ready",
        )


def _wait_until(
    condition: Callable[[], bool],
    problem: str,
    state: Path,
    children: Children,
    tick: Callable[[], None],
) -> None:
    """Wait until a condition holds; raise an error with `problem` after the time limit."""
    deadline = time.monotonic() + _START_SECONDS
    while not condition():
        for name, child in children.items():
            if child.poll() is not None:
                raise LocalClusterError(
                    f"{name} ended with status {child.returncode}; "
                    f"its log is {daemons.log_file(state, name)}",
                    detail=daemons.log_tail(state, name, 5),
                )
        if time.monotonic() > deadline:
            raise LocalClusterError(
                f"{problem} in {_START_SECONDS:.0f} s; the logs are in {state}/logs"
            )
        tick()
        time.sleep(0.05)


def tear_down(state: Path, children: Children, *, keep_logs: bool = False) -> None:
    """Stop every process of the cluster in this directory and remove the files that belong to it.

    Wait for the ends of `children`. The directory itself and its lock file stay.
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
    for name in _DIRECTORIES:
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
