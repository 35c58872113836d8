"""Runs two replicas of the operator, and kills the one that leads."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from elasticjob_api import names

from tests.conftest import REPOSITORY
from tests.support.e2e import images
from tests.support.e2e.operators import LocalOperator
from tests.support.e2e.real_node import counting_job, record_pods, start_job, wait_for_progress
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.target_cluster import OPERATOR_NAMESPACE

pytestmark = pytest.mark.real_node


@pytest.fixture
def home(sandbox: Sandbox) -> Iterator[str]:
    """Return the namespace of an operator with two replicas.

    It is deployed for this test if the cluster has none.
    """
    if not isinstance(sandbox.operator, LocalOperator):
        yield OPERATOR_NAMESPACE
        return
    sandbox.operator.stop()
    path = f"{sandbox.cluster.bin}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "KUBECONFIG": str(sandbox.cluster.kubeconfig)}
    chosen = [
        "MODE=namespaced",
        f"NAMESPACE={sandbox.namespace}",
        f"IMG={images.OPERATOR}",
        f"MASTER_IMG={images.MASTER}",
    ]
    subprocess.run(
        ["make", "-C", REPOSITORY, "deploy", *chosen], env=environ, timeout=200, check=True
    )
    try:
        yield sandbox.namespace
    finally:
        sandbox.kubectl("delete", "ej", "--all", "--timeout=60s")
        subprocess.run(
            ["make", "-C", REPOSITORY, "undeploy", *chosen], env=environ, timeout=200, check=True
        )


@pytest.mark.guarantee("two-leaders")
def test_another_replica_continues_a_killed_leaders_plan_without_a_duplicate_pod(
    sandbox: Sandbox, home: str, tmp_path: Path
) -> None:
    user, before = start_job(sandbox, counting_job("followed", replicas=1))
    killed = leader(sandbox, home)
    with record_pods(sandbox, tmp_path) as recorder:
        user.request("ScaleOut", "more", count=5)
        user.until(
            "a new pod",
            lambda: len({pod["metadata"]["uid"] for _, pod in recorder.states("followed")}) > 1,
        )
        assert [plan["status"]["phase"] for plan in user.items("sp")] == ["Executing"]
        kill(sandbox, home, killed)
        user.wait("scaleout/more", ".status.phase", "ScaleSucceeded")
        user.until("all six at work", lambda: user.at_rest(6))
        wait_for_progress(user)
        assert leader(sandbox, home) != killed
        states = recorder.states("followed")
    recorder.assert_one_pod_per_index("followed")
    assert before.items() < user.pods().items(), "the existing worker was replaced"
    assert [plan["status"]["phase"] for plan in user.items("sp")] == ["Succeeded"]
    created = {pod["metadata"]["name"] for _, pod in states}
    assert created == set(user.pods()), "a pod was created that was not needed"


def leader(sandbox: Sandbox, home: str) -> str:
    """Return the name of the pod that leads."""
    path = "jsonpath={.spec.holderIdentity}"
    return sandbox.cluster.kubectl("-n", home, "get", "lease", names.OPERATOR, "-o", path).split(
        "_"
    )[0]


def kill(sandbox: Sandbox, home: str, pod: str) -> None:
    """Remove a pod without notice, so that it cannot release the lease; on this machine's node by
    kill -9.

    The pod is deleted too. Otherwise its restarted container would compete with the other replica
    for the lease.
    """
    if sandbox.cluster.is_here():
        uid = sandbox.cluster.kubectl(
            "-n", home, "get", "pod", pod, "-o", "jsonpath={.metadata.uid}"
        )
        inside = [
            process
            for process in psutil.process_iter()
            if uid in groups(process.pid) and is_operator(process)
        ]
        assert inside, f"no process of pod {pod} found"
        for process in inside:
            process.send_signal(signal.SIGKILL)
    sandbox.cluster.kubectl("-n", home, "delete", "pod", pod, "--grace-period=0", "--force")


def groups(pid: int) -> str:
    """Return the control groups of a process, which name its pod; empty if it has exited."""
    try:
        return Path(f"/proc/{pid}/cgroup").read_text().replace("_", "-")
    except OSError:
        return ""


def is_operator(process: psutil.Process) -> bool:
    """Return whether a process is the operator, not the one that keeps the pod's network."""
    try:
        return any(names.OPERATOR in argument for argument in process.cmdline())
    except psutil.Error:
        return False
