"""Tests that some replaced failed pods are retained for `kubectl logs`.

No count of members includes them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticjob_api import names
from elasticjob_kube.resources import ELASTIC_JOBS, NODES, PODS, SCALE_INS, SCALE_PLANS
from elasticjob_operator.core.members.retained_pods import MAX_RETAINED_PODS

from tests.support.job_cluster import (
    end_training,
    new_cluster,
    pod_names,
    reconcile_now,
    set_suspend,
    status_of,
)
from tests.support.simulator.cluster import JOB, Cluster, Operator

ENDLESS = {"worker": {"restartLimit": 1000}, "runPolicy": {"backoffLimit": 1000}}


def retained(cluster: Cluster, role: str = "worker") -> list[str]:
    return [pod["metadata"]["name"] for pod in cluster.kube.retained(role)]


async def fail(cluster: Cluster, index: int = 0) -> str:
    """Let the program of a worker fail, and the worker be replaced.

    Return the name of the failed pod.
    """
    name = next(name for name in pod_names(cluster) if name.split("-")[2] == str(index))
    end_training(cluster, name, 1, ran=100.0)
    await cluster.settle()
    return name


@pytest.mark.guarantee("failed-pod-replaced")
async def test_a_failed_pod_stays_when_it_is_replaced_and_counts_as_no_member() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    failed = await fail(cluster)
    assert retained(cluster) == [failed]
    assert pod_names(cluster) == ["job-worker-0-1", "job-worker-1"]
    status = status_of(cluster)
    worker = status["replicaStatuses"]["worker"]
    assert (status["phase"], status["workers"], status["restarts"]) == ("Running", "2/2", 1)
    assert (worker["active"], worker["ready"], worker["failed"], worker["restartsByIndex"]) == (
        2,
        2,
        0,
        {"0": 1},
    )
    cluster.check_final_state()


async def test_it_stays_also_when_its_containers_end_before_its_phase_says_so() -> None:
    """A kubelet reports the two in this order."""
    cluster = new_cluster(replicas=2)
    await cluster.start()
    end_training(cluster, "job-worker-0", 1, ran=100.0)
    cluster.kube.set_status(PODS, "job-worker-0", phase="Running")
    await reconcile_now(cluster)
    assert (PODS, "job-worker-0") in cluster.kube.objects
    cluster.kube.set_status(PODS, "job-worker-0", phase="Failed")
    await cluster.settle()
    assert retained(cluster) == ["job-worker-0"]
    assert pod_names(cluster) == ["job-worker-0-1", "job-worker-1"]
    assert status_of(cluster)["restarts"] == 1
    cluster.check_final_state()


async def test_of_failed_masters_whose_labels_were_edited_no_more_stay() -> None:
    cluster = new_cluster(replicas=1, master={"restartLimit": 1000})
    await cluster.start()
    for _ in range(MAX_RETAINED_PODS + 2):
        masters = [
            pod
            for pod in cluster.kube.all(PODS)
            if pod["metadata"]["name"].startswith("job-master")
        ]
        (name,) = [
            pod["metadata"]["name"] for pod in masters if pod["status"]["phase"] == "Running"
        ]
        cluster.kube.objects[PODS, name]["metadata"]["labels"][names.LABEL_INDEX] = "1"
        end_training(cluster, name, 1, ran=100.0)
        await cluster.settle()
    failed = [pod for pod in cluster.kube.all(PODS) if pod["status"]["phase"] == "Failed"]
    assert len(failed) <= MAX_RETAINED_PODS
    cluster.check_final_state()


@pytest.mark.guarantee("failed-pod-replaced")
async def test_of_each_job_the_last_ones_stay() -> None:
    cluster = new_cluster(replicas=2, **ENDLESS)
    await cluster.start()
    failed = [await fail(cluster, index=number % 2) for number in range(MAX_RETAINED_PODS + 3)]
    assert sorted(retained(cluster)) == sorted(failed[3:])


def test_the_number_in_the_documentation_is_that_of_the_code() -> None:
    text = (Path(__file__).parents[5] / "docs" / "failures.md").read_text()
    assert f"Of each job the newest {MAX_RETAINED_PODS} stay" in text


async def test_a_pod_that_ran_for_long_and_fails_last_is_the_newest() -> None:
    cluster = new_cluster(replicas=2, **ENDLESS)
    await cluster.start()
    others = [await fail(cluster) for _ in range(MAX_RETAINED_PODS)]
    longest = await fail(cluster, index=1)
    assert longest == "job-worker-1", "no other pod is as old"
    assert sorted(retained(cluster)) == sorted([*others[1:], longest])


@pytest.mark.parametrize("end", ["evicted", "drained", "succeeded", "vanished"])
async def test_what_is_no_failure_of_the_program_does_not_stay(end: str) -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    if end == "evicted":
        cluster.kube.set_status(
            PODS, "job-worker-0", phase="Failed", reason="Evicted", conditions=[]
        )
    elif end == "vanished":
        cluster.kube.remove(PODS, "job-worker-0")
    else:
        end_training(cluster, "job-worker-0", names.EXIT_DRAINED if end == "drained" else 0)
    await cluster.settle()
    assert [
        pod["metadata"]["name"]
        for pod in cluster.kube.all(PODS)
        if pod["status"]["phase"] == "Failed"
    ] == []


async def test_a_pod_of_which_a_container_still_runs_does_not_stay() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    cluster.kube.objects[PODS, "job-worker-0"]["spec"]["containers"].append({"name": "sidecar"})
    end_training(cluster, "job-worker-0", 1)
    cluster.kube.set_status(PODS, "job-worker-0", phase="Running")
    await cluster.settle()
    assert retained(cluster) == []
    assert "job-worker-0" not in pod_names(cluster)


async def test_the_pod_of_a_failed_master_stays_as_well() -> None:
    cluster = new_cluster(replicas=1)
    await cluster.start()
    end_training(cluster, "job-master", 1)
    await cluster.settle()
    assert retained(cluster, names.ROLE_MASTER) == ["job-master"]
    assert pod_names(cluster, names.ROLE_MASTER) == ["job-master-1"]
    assert status_of(cluster)["master"]["restarts"] == 1


async def test_another_operator_counts_and_writes_nothing() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    failed = await fail(cluster)
    before = status_of(cluster)
    writes = cluster.kube.writes
    cluster.operator = Operator(cluster.kube)
    await reconcile_now(cluster)
    assert (status_of(cluster), cluster.kube.writes, retained(cluster)) == (
        before,
        writes,
        [failed],
    )


async def test_a_user_may_delete_it() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    cluster.kube.remove(PODS, await fail(cluster))
    before = status_of(cluster)
    writes = cluster.kube.writes
    await cluster.settle()
    assert (status_of(cluster), cluster.kube.writes) == (before, writes)


async def test_the_member_whose_next_pod_vanishes_is_replaced_and_that_is_counted_once() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    failed = await fail(cluster)
    cluster.kube.remove(PODS, "job-worker-0-1")
    await cluster.settle()
    assert (retained(cluster), pod_names(cluster)) == ([failed], ["job-worker-0-2", "job-worker-1"])
    worker = status_of(cluster)["replicaStatuses"]["worker"]
    assert (worker["restartsByIndex"], worker["uncountedByIndex"]) == ({"0": 1}, {"0": 1})


@pytest.mark.guarantee("failed-pod-replaced")
@pytest.mark.parametrize("label", [names.LABEL_INDEX, names.LABEL_INCARNATION, names.LABEL_ROLE])
async def test_a_retained_pod_whose_labels_are_edited_counts_for_no_other_member(
    label: str,
) -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    failed = await fail(cluster)
    before = status_of(cluster)
    cluster.kube.edit_metadata(
        PODS, failed, lambda metadata: metadata["labels"].update({label: "7"})
    )
    await cluster.settle()
    assert status_of(cluster) == before
    cluster.check_final_state()


async def test_its_node_may_leave_and_nothing_is_drained() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    await cluster.kube.create(
        NODES, None, {"metadata": {"name": "node"}, "spec": {"unschedulable": True}}
    )
    failed = await fail(cluster)
    cluster.kube.objects[PODS, failed]["spec"]["nodeName"] = "node"
    cluster.kube.set_status(PODS, failed, conditions=[])
    await cluster.settle()
    assert cluster.kube.all(SCALE_PLANS) == []
    assert retained(cluster) == [failed]


async def test_it_goes_when_its_member_is_removed() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    await fail(cluster, index=1)
    await cluster.apply(SCALE_INS, "less", podNames=["job-worker-1-1"])
    await cluster.settle()
    assert retained(cluster) == []
    assert pod_names(cluster) == ["job-worker-0"]


async def test_it_goes_when_the_job_is_suspended_and_the_job_resumes_without_it() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    await fail(cluster)
    set_suspend(cluster, True)
    await cluster.settle()
    assert cluster.kube.all(PODS) == []
    assert status_of(cluster)["phase"] == "Suspended"
    set_suspend(cluster, False)
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-0-2", "job-worker-1-3"]


@pytest.mark.parametrize(("policy", "stays"), [("Running", True), ("None", True), ("All", False)])
async def test_at_the_end_of_the_job_its_policy_decides(policy: str, stays: bool) -> None:
    cluster = new_cluster(replicas=1, runPolicy={"cleanPodPolicy": policy})
    await cluster.start()
    failed = await fail(cluster)
    end_training(cluster, "job-worker-0-1", 0)
    end_training(cluster, "job-master", 1)
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Succeeded"
    assert [pod["metadata"]["name"] for pod in cluster.kube.all(PODS)] == (
        [failed, "job-worker-0-1"] if stays else []
    )


@pytest.mark.guarantee("failed-pod-replaced")
async def test_it_makes_room_while_the_api_server_refuses_pods() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    failed = await fail(cluster)
    job = cluster.job()
    cluster.operator.store.record_refusal(job, "exceeded quota: objects, requested: count/pods=1")
    await reconcile_now(cluster)
    assert (PODS, failed) not in cluster.kube.objects


@pytest.mark.guarantee("failed-pod-replaced")
@pytest.mark.parametrize("write", range(1, 12))
@pytest.mark.parametrize("fault", ["crash_in", "lose_answer_in"])
async def test_it_stays_whenever_the_operator_dies(fault: str, write: int) -> None:
    cluster = new_cluster(replicas=2, **ENDLESS)
    await cluster.start()
    setattr(cluster.kube, fault, write)
    failed = [await fail(cluster), await fail(cluster)]
    setattr(cluster.kube, fault, None)
    await cluster.settle()
    assert sorted(retained(cluster)) == sorted(failed)
    assert status_of(cluster)["replicaStatuses"]["worker"]["restartsByIndex"] == {"0": 2}
    cluster.check_final_state()


async def test_an_earlier_operator_that_did_not_note_incarnations_leaves_the_same() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    failed = await fail(cluster)
    worker = status_of(cluster)["replicaStatuses"]["worker"]
    del worker["incarnationByIndex"]
    cluster.kube.set_status(ELASTIC_JOBS, JOB, replicaStatuses={"worker": worker})
    cluster.operator = Operator(cluster.kube)
    await cluster.settle()
    assert (retained(cluster), pod_names(cluster)) == ([failed], ["job-worker-0-1", "job-worker-1"])
    assert status_of(cluster)["restarts"] == 1
