"""Lets the cluster evict workers, drain their node, or lose it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path

import psutil
import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json

from tests.support.e2e.kubectl_user import KubectlUser
from tests.support.e2e.real_node import (
    PodRecorder,
    counting_job,
    follow_logs,
    record_pods,
    start_job,
    wait_for_progress,
)
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.target_cluster import TargetCluster

pytestmark = pytest.mark.real_node
SECONDS_OF_A_LOST_NODE = 180.0
"""Kubernetes itself takes 50 s to call a node lost."""
FORCE_SECONDS = 10
LOST = {"node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"}
NOT_COUNTED = "node.kubernetes.io/exclude-disruption"


@pytest.mark.guarantee("uncounted-failures")
def test_an_evicted_worker_drains_first_and_is_replaced_uncounted(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    user, before = start_job(sandbox, counting_job("evicted", replicas=2))
    evicted = "evicted-worker-1"
    staying = "evicted-worker-0"
    with (
        record_pods(sandbox, tmp_path) as recorder,
        follow_logs(sandbox, tmp_path, evicted) as said,
    ):
        evict(sandbox, evicted)
        user.until("a successor at work", lambda: user.at_rest(2) and evicted not in user.pods())
        assert user.pods()[staying] == before[staying]
        assert "saved at step" in said(), "the worker was ended before it had saved its state"
        user.until("its end", lambda: evicted in recorder.terminations("evicted"))
        assert recorder.terminations("evicted")[evicted]["exitCode"] == names.EXIT_DRAINED
        recorder.assert_one_pod_per_index("evicted")
    assert_no_restart_counted(user)
    wait_for_progress(user)


@pytest.mark.guarantee("uncounted-failures")
def test_a_job_continues_after_its_only_node_is_drained_and_returns(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    user, before = start_job(sandbox, counting_job("drained", replicas=2))
    node = user.get("pod/drained-worker-0")["spec"]["nodeName"]
    mine = f"--pod-selector={names.LABEL_JOB_NAME}=drained"
    with (
        record_pods(sandbox, tmp_path) as recorder,
        follow_logs(sandbox, tmp_path, "drained-worker-0") as said,
    ):
        try:
            user.kubectl(
                "drain",
                node,
                mine,
                "--ignore-daemonsets",
                "--delete-emptydir-data",
                "--timeout=100s",
            )
            assert not set(before) & set(user.pods()), "a drained node still has workers"
        finally:
            user.kubectl("uncordon", node)
        user.until("two others at work", lambda: user.at_rest(2))
        assert not set(before) & set(user.pods())
        assert "saved at step" in said(), "the worker was ended before it had saved its state"
        user.until("their ends", lambda: set(before) <= set(recorder.terminations("drained")))
        assert {recorder.terminations("drained")[name]["exitCode"] for name in before} == {
            names.EXIT_DRAINED
        }
        recorder.assert_one_pod_per_index("drained")
    assert_no_restart_counted(user)
    wait_for_progress(user)


@pytest.mark.guarantee("uncounted-failures", "pod-stuck-in-deletion")
def test_workers_of_a_lost_node_get_no_second_pod_before_their_role_allows_it(
    sandbox: Sandbox, cluster: TargetCluster, tmp_path: Path
) -> None:
    kubelet = kubelet_of(cluster)
    jobs = {name: evicted_at_once(counting_job(name)) for name in ("forced", "patient")}
    jobs["forced"]["spec"]["replicaSpecs"]["worker"]["podForceDeleteSeconds"] = FORCE_SECONDS
    forced, before = start_job(sandbox, jobs["forced"])
    patient, patients = start_job(sandbox, jobs["patient"])
    node = forced.get("pod/forced-worker-0")["spec"]["nodeName"]
    with record_pods(sandbox, tmp_path) as recorder:
        with suspended_kubelet(forced, kubelet, node):
            forced.until(
                "a successor by force",
                lambda: (
                    {pod["metadata"]["name"] for _, pod in recorder.states("forced")} > set(before)
                ),
                seconds=SECONDS_OF_A_LOST_NODE,
            )
            waited = seconds_from_end_to_successor(recorder, "forced")
            assert waited >= FORCE_SECONDS, f"replaced {waited} s after its time to end"
            assert {pod["metadata"]["name"] for _, pod in recorder.states("patient")} == set(
                patients
            )
            assert "deletionTimestamp" in patient.get("pod/patient-worker-0")["metadata"]
        for user in (forced, patient):
            user.until("a successor at work", partial(user.at_rest, 1))
            assert_no_restart_counted(user)
        recorder.assert_one_pod_per_index("forced")
        recorder.assert_one_pod_per_index("patient")
    wait_for_progress(patient)


def evict(sandbox: Sandbox, pod: str) -> None:
    """Ask the API server to evict a pod, as `kubectl drain` and every autoscaler of nodes does."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": sandbox.namespace},
    }
    path = f"/api/v1/namespaces/{sandbox.namespace}/pods/{pod}/eviction"
    sandbox.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))


def assert_no_restart_counted(user: KubectlUser) -> None:
    """Assert that no restart was counted."""
    assert user.status()["replicaStatuses"]["worker"].get("restarts", 0) == 0, (
        "who is asked to leave has not failed"
    )


# --- a lost node


def kubelet_of(cluster: TargetCluster) -> psutil.Process:
    """Return the kubelet of the cluster's only node, if that is this machine; else skip."""
    found = (
        [each for each in psutil.process_iter(["name"]) if each.info["name"] == "kubelet"]
        if cluster.is_here()
        else []
    )
    if len(found) != 1:
        pytest.skip("stopping a node's kubelet needs the node to be this machine, with one kubelet")
    return found[0]


def evicted_at_once(job: Json) -> Json:
    """Let a job's workers be evicted at once when their node is lost, not 5 minutes later."""
    lost = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
        for key in sorted(LOST)
    ]
    worker = job["spec"]["replicaSpecs"]["worker"]
    worker["drainSeconds"] = 1
    worker["template"]["spec"]["tolerations"] = lost
    return job


@contextmanager
def suspended_kubelet(user: KubectlUser, kubelet: psutil.Process, node: str) -> Iterator[None]:
    """Send the kubelet SIGSTOP while in the block.

    The node is Ready again afterwards, and evicts no pod.
    """
    # If all counted nodes are lost, Kubernetes considers itself cut off and evicts no pod; if no
    # node is counted, it evicts. Without the label, eviction and that decision would race within
    # milliseconds.
    user.kubectl("label", f"node/{node}", f"{NOT_COUNTED}=true")
    kubelet.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        kubelet.send_signal(signal.SIGCONT)
        user.kubectl("label", f"node/{node}", f"{NOT_COUNTED}-")
        user.kubectl("wait", f"node/{node}", "--for=condition=Ready", "--timeout=60s")
        user.until("the end of its taints", lambda: not LOST & taints(user, node))


def taints(user: KubectlUser, node: str) -> set[str]:
    """Return the keys of the taints that keep pods from a node."""
    return {taint["key"] for taint in user.get(f"node/{node}")["spec"].get("taints", [])}


def seconds_from_end_to_successor(recorder: PodRecorder, job: str) -> float:
    """Return the time from the end of the first pod's grace period to the second pod."""
    pods = [pod["metadata"] for _, pod in recorder.states(job)]
    # The first state that shows it, because a forced deletion sets it again.
    first = next(
        pod for pod in pods if pod["name"] == f"{job}-worker-0" and "deletionTimestamp" in pod
    )
    second = next(pod for pod in pods if pod["name"] == f"{job}-worker-0-1")
    ends, created = (
        datetime.fromisoformat(text)
        for text in (first["deletionTimestamp"], second["creationTimestamp"])
    )
    return (created - ends).total_seconds()
