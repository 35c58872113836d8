"""Tests pods on lost nodes, other pods with a member's name, and pods the API server refuses."""

from __future__ import annotations

from contextlib import suppress

import pytest
from elasticjob_api import names
from elasticjob_api.limits import LEAST_MASTER_FORCE_DELETE_SECONDS
from elasticjob_api.meta import Json
from elasticjob_api.times import format_time
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import PODS, SCALE_OUTS, Resource
from elasticjob_operator.core.decide import decide
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.work_queue import Retry

from tests.support.job_cluster import end_training, new_cluster, pod_names, set_suspend
from tests.support.simulator.cluster import DEFAULTS, JOB, NAMESPACE, Cluster


def make_stuck(cluster: Cluster, name: str, *, grace: int | None = None) -> None:
    """Mark a pod as deleted, on a node that does not answer: it does not terminate."""
    found = cluster.kube.objects[PODS, name]
    found["metadata"]["deletionTimestamp"] = format_time(cluster.now)
    if grace is not None:
        found["metadata"]["deletionGracePeriodSeconds"] = grace
    cluster.kube.set_status(PODS, name)


async def without_kubelet(cluster: Cluster, seconds: int) -> None:
    for _ in range(seconds // 2):
        await cluster.run_operator()


@pytest.mark.guarantee("pod-stuck-in-deletion")
async def test_a_member_on_a_lost_node_is_not_replaced_unless_the_user_gives_it_up() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    make_stuck(cluster, "job-worker-1")
    await without_kubelet(cluster, 1000)
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1"]


@pytest.mark.guarantee("pod-stuck-in-deletion")
async def test_a_member_on_a_lost_node_is_given_up_after_the_time_the_user_says() -> None:
    cluster = new_cluster(replicas=2, worker={"podForceDeleteSeconds": 60})
    await cluster.start()
    make_stuck(cluster, "job-worker-1")
    await without_kubelet(cluster, 56)
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1"]
    await without_kubelet(cluster, 10)
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1-1"]


@pytest.mark.guarantee("master-deleted-node-lost")
async def test_a_master_on_a_lost_node_is_given_up_after_two_minutes() -> None:
    cluster = new_cluster(replicas=1)
    await cluster.start()
    make_stuck(cluster, "job-master")
    await without_kubelet(cluster, 110)
    assert pod_names(cluster, names.ROLE_MASTER) == ["job-master"]
    await without_kubelet(cluster, 20)
    assert pod_names(cluster, names.ROLE_MASTER) == ["job-master-1"]


@pytest.mark.guarantee("two-masters-at-a-time")
async def test_no_master_is_given_up_before_all_that_it_has_sent_has_arrived() -> None:
    cluster = new_cluster(replicas=1, master={"podForceDeleteSeconds": 1})
    await cluster.start()
    make_stuck(cluster, "job-master")
    await without_kubelet(cluster, LEAST_MASTER_FORCE_DELETE_SECONDS - 5)
    assert pod_names(cluster, names.ROLE_MASTER) == ["job-master"]
    await without_kubelet(cluster, 10)
    assert pod_names(cluster, names.ROLE_MASTER) == ["job-master-1"]


async def test_a_pod_with_a_finalizer_is_not_forced_again_and_again() -> None:
    cluster = new_cluster(replicas=2, worker={"podForceDeleteSeconds": 60})
    await cluster.start()
    make_stuck(cluster, "job-worker-1", grace=0)
    await without_kubelet(cluster, 100)
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1"]
    writes = cluster.kube.writes
    await without_kubelet(cluster, 100)
    assert cluster.kube.writes == writes


@pytest.mark.parametrize("suspended", [True, False])
async def test_lost_nodes_do_not_keep_a_job_from_being_suspended_or_cleaned_up(
    suspended: bool,
) -> None:
    cluster = new_cluster(
        replicas=2, worker={"podForceDeleteSeconds": 60, "completion": {"minSucceeded": 1}}
    )
    await cluster.start()
    if suspended:
        set_suspend(cluster, True)
    else:
        end_training(cluster, "job-worker-0", 0)
    await without_kubelet(cluster, 30)
    assert {"job-master", "job-worker-1"} <= {
        pod["metadata"]["name"] for pod in cluster.kube.all(PODS)
    }
    await without_kubelet(cluster, 250)
    assert [p["metadata"]["name"] for p in cluster.kube.all(PODS)] == (
        [] if suspended else ["job-worker-0"]
    )


async def foreign_pod(cluster: Cluster, name: str) -> str:
    """Create a pod of another owner with a name that the job may need; return its UID."""
    labels = {names.LABEL_ROLE: "foreign", names.LABEL_INDEX: name}
    made = await cluster.kube.create(
        PODS, NAMESPACE, {"metadata": {"name": name, "labels": labels}}
    )
    return str(made["metadata"]["uid"])


@pytest.mark.guarantee("foreign-object-with-our-name")
async def test_a_foreign_pod_with_a_members_name_is_not_touched_and_another_name_is_used() -> None:
    cluster = new_cluster(replicas=2)
    theirs = await foreign_pod(cluster, "job-worker-1")
    await cluster.start()
    assert cluster.kube.objects[PODS, "job-worker-1"]["metadata"]["uid"] == theirs
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1-1"]
    assert cluster.job().status.phase == "Running"
    assert cluster.job().status.message == ""


async def test_after_every_name_that_is_taken_there_is_a_pause_and_the_job_reports_why() -> None:
    cluster = new_cluster(replicas=3)
    await cluster.start()
    for number in range(1, 6):
        await foreign_pod(cluster, f"job-worker-0-{number}")
    cluster.kube.remove(PODS, "job-worker-0")
    operator = cluster.operator
    pauses = 0
    messages = set()
    await operator.watch()
    for _ in range(40):
        job = operator.store.job(JobKey(NAMESPACE, JOB))
        assert job is not None
        messages.add(job.status.message)
        decision = decide(operator.store.observed(job), cluster.now, DEFAULTS)
        if not decision.actions:
            break
        try:
            await operator.executor.execute(job, decision.actions)
        except Retry:
            pauses += 1
    assert pauses == 5
    assert pod_names(cluster) == ["job-worker-0-6", "job-worker-1", "job-worker-2"]
    assert "pod job-worker-0-1 exists and does not belong to this job; it is left alone" in messages


@pytest.mark.guarantee("api-server-refuses-for-now")
async def test_while_a_quota_is_used_up_one_pod_at_a_time_is_tried_and_names_are_kept() -> None:
    cluster = new_cluster(replicas=2, most=100)
    await cluster.start()

    def over_quota(resource: Resource, body: Json) -> None:
        if resource == PODS:
            raise Refused(403, "Forbidden", "exceeded quota: pods=2")

    cluster.kube.before_create = over_quota
    await cluster.apply(SCALE_OUTS, "more", count=20)
    for _ in range(3):
        await cluster.operator.watch()
        with suppress(AssertionError):  # each pause is followed by another attempt
            await cluster.operator.work(cluster.now, rounds=10)
    assert cluster.job().status.replica_statuses["worker"].incarnations < 50
    assert "exceeded quota" in cluster.job().status.message
    cluster.kube.before_create = None
    await cluster.settle()
    cluster.check_final_state()
    assert len(pod_names(cluster)) == 22


@pytest.mark.parametrize("refused", ["job-worker-0", "job-ps-"])
async def test_one_pod_that_is_refused_keeps_no_other_from_being_created(refused: str) -> None:
    cluster = new_cluster(replicas=3)
    cluster._body["spec"]["framework"] = "tensorflow"
    cluster._body["spec"]["replicaSpecs"]["ps"] = {
        **cluster._body["spec"]["replicaSpecs"]["worker"],
        "replicas": 2,
    }
    await cluster.start()

    def limited(resource: Resource, body: Json) -> None:
        if resource == PODS and body["metadata"]["name"].startswith(refused):
            raise Refused(403, "Forbidden", "maximum memory usage per Pod is 4Gi")

    cluster.kube.before_create = limited
    for pod in (*cluster.kube.pods("ps"), *cluster.kube.pods()):
        cluster.kube.remove(PODS, pod["metadata"]["name"])
    for _ in range(6):
        await cluster.operator.watch()
        with suppress(Retry):
            await cluster.operator.reconciler.reconcile(JobKey(NAMESPACE, JOB))
    labels = [pod["metadata"]["labels"] for pod in (*cluster.kube.pods("ps"), *cluster.kube.pods())]
    found = sorted(f"job-{each[names.LABEL_ROLE]}-{each[names.LABEL_INDEX]}" for each in labels)
    every = ["job-ps-0", "job-ps-1", "job-worker-0", "job-worker-1", "job-worker-2"]
    assert found == [name for name in every if not name.startswith(refused)]
    assert "maximum memory" in cluster.job().status.message
