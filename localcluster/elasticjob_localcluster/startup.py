"""Starts the processes of a cluster in their order."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from elasticjob_localcluster import daemons
from elasticjob_localcluster.controlplane import api_readiness, components
from elasticjob_localcluster.controlplane.pki import make_pki
from elasticjob_localcluster.errors import LocalClusterError
from elasticjob_localcluster.teardown import CLUSTER_FILE, DIRECTORIES

if TYPE_CHECKING:
    from elasticjob_localcluster.cluster import Cluster

_START_SECONDS = 120.0


def start(
    cluster: Cluster,
    programs: Mapping[str, Path],
    capacity: Mapping[str, str],
    environ: Mapping[str, str],
    tick: Callable[[], None],
) -> None:
    """Start a cluster in its empty directory, and return when it accepts pods."""
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
                    f"{name} ended with status {child.returncode}; "
                    f"its log is {cluster.log_file(name)}",
                    detail=cluster.log_tail(name, 5),
                )
        if time.monotonic() > deadline:
            raise LocalClusterError(
                f"{problem} in {_START_SECONDS:.0f} s; the logs are in {cluster.state}/logs"
            )
        tick()
        time.sleep(0.05)
