"""Tests that a stopped job is drained as in a suspension and ends for good, in every phase."""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_OUTS, SCALE_PLANS

from tests.support.job_cluster import (
    condition,
    end_training,
    ending,
    new_cluster,
    pod_names,
    reconcile_now,
    set_stop,
    set_suspend,
    status_of,
)
from tests.support.simulator.cluster import Cluster

RETRY = {"policy": "Always", "minDelaySeconds": 60}


def check_stopped(cluster: Cluster) -> None:
    """Check that the job has the phase Stopped, and that none of its pods runs."""
    status = status_of(cluster)
    assert (status["phase"], status["message"]) == ("Stopped", "spec.runPolicy.stop is true")
    assert condition(cluster, "Failed") == ("True", "Stopped")
    assert "completionTime" in status
    assert {"currentPlan", "retryTime"} & status.keys() == set()
    assert [
        pod["metadata"]["name"]
        for pod in cluster.kube.all(PODS)
        if pod["status"]["phase"] == "Running"
    ] == []


async def test_a_stopped_job_drains_members_before_its_master_and_has_the_phase_stopped() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    set_stop(cluster)
    await cluster.run_operator()
    assert ending(cluster) == ["job-worker-0", "job-worker-1"], "the master last"
    assert (status_of(cluster)["phase"], status_of(cluster)["message"]) == (
        "Running",
        "stopping: 3 pods are draining; spec.runPolicy.stop is true",
    )
    await cluster.settle()
    check_stopped(cluster)
    assert condition(cluster, "Running") == ("False", "JobStopped")
    assert cluster.kube.all(PODS) == []
    writes = cluster.kube.writes
    await cluster.run_operator()
    assert cluster.kube.writes == writes


@pytest.mark.guarantee("job-stopped-for-good")
@pytest.mark.parametrize("user", ["alice", "a\n\x1b" + "x" * 1000])
async def test_the_message_says_who_has_stopped_a_job(user: str) -> None:
    cluster = new_cluster(replicas=2)
    cluster._body["metadata"]["annotations"] = {names.ANNOTATION_STOPPED_BY: user}
    await cluster.start()
    set_stop(cluster)
    await cluster.settle()
    message = status_of(cluster)["message"]
    assert message.startswith("spec.runPolicy.stop is true; stopped by a")
    assert message.isprintable()
    assert len(message) < 320


async def in_state(state: str) -> Cluster:
    """Return a cluster whose job is in this state."""
    policy: dict[str, Any] = {"Suspended": {"suspend": True}, "New": {"stop": True}}.get(
        state, {"retry": RETRY}
    )
    cluster = new_cluster(replicas=2, runPolicy=policy)
    if state == "Pending":
        await cluster.create(ELASTIC_JOBS, cluster._body)
        await cluster.run_operator()
        return cluster
    await cluster.start()
    if state == "Retrying":
        end_training(cluster, "job-worker-0", 210)
        await reconcile_now(cluster)
    elif state == "Scaling":
        await cluster.apply(SCALE_OUTS, "more", count=2)
        await cluster.run_operator()
    elif state == "Suspending":
        set_suspend(cluster, True)
        await cluster.run_operator()
    if state not in ("New", "Suspending"):
        assert status_of(cluster)["phase"] == state
    return cluster


@pytest.mark.guarantee("job-stopped-for-good")
@pytest.mark.parametrize(
    "state", ["New", "Pending", "Running", "Scaling", "Suspending", "Suspended", "Retrying"]
)
async def test_a_job_can_be_stopped_in_every_state_and_is_not_retried(state: str) -> None:
    cluster = await in_state(state)
    set_stop(cluster)
    await cluster.settle()
    check_stopped(cluster)
    assert status_of(cluster).get("retries", 0) == (state == "Retrying")
    for plan in cluster.kube.all(SCALE_PLANS):
        assert plan["status"]["phase"] in ("Failed", "Cancelled")
    cluster.now += 1000
    await cluster.settle()
    check_stopped(cluster)


@pytest.mark.guarantee("job-stopped-for-good")
@pytest.mark.parametrize("write", range(1, 10))
async def test_a_stop_continues_after_a_crash_of_the_operator_at_any_write(write: int) -> None:
    cluster = await in_state("Scaling")
    cluster.kube.crash_in = write
    set_stop(cluster)
    await cluster.settle()
    check_stopped(cluster)


@pytest.mark.guarantee("job-stopped-for-good")
async def test_a_stopped_job_is_not_scaled() -> None:
    cluster = await in_state("Running")
    set_stop(cluster)
    await cluster.run_operator()
    await cluster.apply(SCALE_OUTS, "more", count=1)
    await cluster.run_operator()
    status = cluster.kube.objects[SCALE_OUTS, "more"]["status"]
    assert (status["phase"], status["message"]) == (
        "ScaleFailed",
        "spec.jobName: ElasticJob 'job' is being stopped",
    )
    await cluster.settle()
    await cluster.apply(SCALE_OUTS, "later", count=1)
    await cluster.settle()
    assert cluster.kube.objects[SCALE_OUTS, "later"]["status"]["message"].endswith(
        "has ended (Stopped)"
    )


async def test_a_job_whose_training_ends_during_its_stop_succeeds_and_is_not_retried() -> None:
    cluster = await in_state("Running")
    set_stop(cluster)
    for name in pod_names(cluster):
        end_training(cluster, name, 0)
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Succeeded"
    assert "retries" not in status_of(cluster)


@pytest.mark.parametrize("how", ["stop", "suspend"])
async def test_a_terminated_member_without_an_agent_has_not_succeeded_with_exit_code_0(
    how: str,
) -> None:
    cluster = new_cluster(replicas=2, framework="custom", worker={"agent": "None"})
    await cluster.start()
    set_stop(cluster) if how == "stop" else set_suspend(cluster, True)
    await cluster.run_operator()
    for name in pod_names(cluster):
        end_training(cluster, name, 0)
    await cluster.settle()
    assert status_of(cluster)["phase"] == {"stop": "Stopped", "suspend": "Suspended"}[how]


@pytest.mark.parametrize(("policy", "kept"), [("All", 0), ("Running", 1), ("None", 1)])
async def test_pods_that_had_ended_stay_as_the_policy_says(policy: str, kept: int) -> None:
    cluster = new_cluster(replicas=2, runPolicy={"cleanPodPolicy": policy})
    await cluster.start()
    end_training(cluster, "job-worker-0", 0)
    await cluster.settle()
    set_stop(cluster)
    await cluster.settle()
    check_stopped(cluster)
    assert len(pod_names(cluster)) == kept


def delete_job(cluster: Cluster, *finalizers: str) -> None:
    """Delete the job as a user does, while these finalizers keep the object."""
    cluster.kube.edit_metadata(
        ELASTIC_JOBS, "job", lambda found: found.update(finalizers=list(finalizers))
    )
    cluster.kube.mark_deleted(ELASTIC_JOBS, "job")


@pytest.mark.guarantee("deleted-job-kept")
@pytest.mark.parametrize("state", ["Running", "Pending", "Suspended", "Scaling"])
async def test_a_deleted_job_that_a_finalizer_keeps_ends_and_says_what_keeps_it(state: str) -> None:
    cluster = await in_state(state)
    delete_job(cluster, "example.com/audit")
    await cluster.settle()
    assert cluster.kube.all(PODS) == []
    status = status_of(cluster)
    assert (status["phase"], status["message"]) == (
        "Stopped",
        "it is being deleted; metadata.finalizers keep it: example.com/audit",
    )
    assert condition(cluster, "Failed") == ("True", "Deleted")
    writes = cluster.kube.writes
    await cluster.run_operator()
    assert cluster.kube.writes == writes


async def test_members_of_a_deleted_job_drain_before_its_master_and_are_not_replaced() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    delete_job(cluster, "example.com/audit")
    cluster.end("job-worker-0", 1)
    await cluster.run_operator()
    assert ending(cluster) == ["job-worker-1"]
    assert status_of(cluster)["message"] == (
        "stopping: 2 pods are draining; it is being deleted; metadata.finalizers keep it: "
        "example.com/audit"
    )
    await cluster.settle()
    assert cluster.kube.all(PODS) == []


async def test_an_ended_job_that_is_deleted_keeps_no_pod() -> None:
    cluster = new_cluster(replicas=2, runPolicy={"cleanPodPolicy": "None"})
    await cluster.start()
    end_training(cluster, "job-worker-0", 210)
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1"]
    delete_job(cluster, "example.com/audit")
    await cluster.settle()
    assert cluster.kube.all(PODS) == []


async def test_the_pods_of_a_job_that_is_deleted_without_them_run_on() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    delete_job(cluster, "orphan")
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1"]
    assert status_of(cluster)["phase"] == "Running"
