"""Tests a job that waits for quota from Kueue.

Its start, growth, shrinking, eviction and end follow its Workload.
"""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_api.pooled_jobs import KUEUE_QUEUE
from elasticjob_kube.errors import NotFound
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    KUEUE_PRIORITIES,
    KUEUE_WORKLOADS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    Resource,
)
from elasticjob_operator.core.model.workload import workload_name
from elasticjob_operator.decision_costs import DecisionCosts
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.reconcile import Reconciler
from elasticjob_operator.work_queue import WorkQueue

from tests.support.job_cluster import (
    condition,
    end_training,
    ending,
    new_cluster,
    pod_names,
    reconcile_now,
    set_suspend,
    status_of,
)
from tests.support.played_kueue import FLAVOR, PlayedKueue, queued_cluster
from tests.support.simulator.cluster import DEFAULTS, JOB, NAMESPACE, Cluster, Operator
from tests.support.wait import until


def uids(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["uid"] for pod in cluster.kube.all(PODS)}


def counts(kueue: PlayedKueue) -> list[dict[str, int]]:
    """Return the size of each Workload, the oldest first."""
    return [
        {each["name"]: each["count"] for each in body["spec"]["podSets"]}
        for body in kueue.workloads()
    ]


def reclaimed(body: Json) -> dict[str, int]:
    return {each["name"]: each["count"] for each in body["status"].get("reclaimablePods", [])}


def edit_labels(cluster: Cluster, **labels: str | None) -> None:
    def edit(metadata: Json) -> None:
        metadata["labels"] = {key: value for key, value in labels.items() if value is not None}

    cluster.kube.edit_metadata(ELASTIC_JOBS, JOB, edit)


# --- start and end


async def test_a_job_has_no_pods_before_it_has_quota_and_says_which_queue_it_waits_for() -> None:
    cluster, kueue = queued_cluster(2, replicas=2, runPolicy={"startPolicy": "AllReady"})
    await kueue.start()
    assert cluster.kube.created_names == set()
    assert condition(cluster, "Suspended") == ("True", "WaitingForQuota")
    assert status_of(cluster)["message"] == (
        "waits for quota in queue team: insufficient unused quota: 2 pods are left"
    )
    assert "startTime" not in status_of(cluster), "its time to be active has not begun"
    assert counts(kueue) == [{"master": 1, "worker": 2}]
    writes = cluster.kube.writes
    await cluster.run_operator()
    assert cluster.kube.writes == writes, "nothing is written while it waits"
    kueue.quota = 3
    await kueue.settle()
    assert status_of(cluster)["phase"] == "Running"
    assert condition(cluster, "Suspended") == ("False", "Resumed")
    cluster.check_final_state()


async def test_pods_run_on_the_nodes_of_their_flavour_and_are_not_counted_a_second_time() -> None:
    cluster, kueue = queued_cluster(9, replicas=2)
    await kueue.start()
    for pod in cluster.kube.all(PODS):
        assert pod["spec"]["nodeSelector"] == {"pool": FLAVOR}
        assert KUEUE_QUEUE not in pod["metadata"]["labels"]


async def test_a_workload_has_the_requests_of_its_pods_and_its_job_as_its_controller() -> None:
    cluster, kueue = queued_cluster(9, replicas=2)
    await kueue.start()
    (workload,) = kueue.workloads()
    assert workload["spec"]["queueName"] == "team"
    (owner,) = workload["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["controller"], owner["uid"]) == (
        "ElasticJob",
        True,
        cluster.job().metadata.uid,
    )
    for each in workload["spec"]["podSets"]:
        assert (
            {"name", "resources", "image"}
            >= each["template"]["spec"]["containers"][0].keys()
            >= {"name", "image"}
        )


async def test_the_workload_of_a_job_that_has_ended_is_finished() -> None:
    cluster, kueue = queued_cluster(9, replicas=1)
    await kueue.start()
    end_training(cluster, "job-worker-0", 0)
    await kueue.settle()
    assert status_of(cluster)["phase"] == "Succeeded"
    (workload,) = kueue.workloads()
    finished = [each for each in workload["status"]["conditions"] if each["type"] == "Finished"]
    assert [(each["status"], each["reason"]) for each in finished] == [("True", "Succeeded")]


async def test_the_workload_shows_kueue_whether_the_job_runs() -> None:
    _, kueue = queued_cluster(9, replicas=1)
    await kueue.start()
    (workload,) = kueue.workloads()
    ready = [each for each in workload["status"]["conditions"] if each["type"] == "PodsReady"]
    assert [(each["status"], each["reason"]) for each in ready] == [("True", "Started")]
    assert {each["type"] for each in workload["status"]["conditions"]} >= {
        "Admitted",
        "QuotaReserved",
    }, "they stay"


async def test_the_priority_is_that_of_the_class_that_the_job_names() -> None:
    cluster, kueue = queued_cluster(9, replicas=1)
    cluster._body["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high"
    with pytest.raises(
        AssertionError, match="does not settle"
    ):  # it tries again, with pauses in a real process
        await kueue.start()
    assert "WorkloadPriorityClass 'high' does not exist; create it" in status_of(cluster)["message"]
    assert cluster.kube.created_names == set()
    await cluster.kube.create(KUEUE_PRIORITIES, None, {"metadata": {"name": "high"}, "value": 7})
    await kueue.settle()
    (workload,) = kueue.workloads()
    assert workload["spec"]["priority"] == 7
    assert workload["spec"]["priorityClassRef"]["kind"] == "WorkloadPriorityClass"
    assert status_of(cluster)["phase"] == "Running"


# --- a part of the quota


@pytest.mark.parametrize(("elastic", "quota"), [(True, 7), (False, 11)])
async def test_a_job_starts_with_the_members_that_fit_and_gets_the_others_later(
    elastic: bool, quota: int
) -> None:
    cluster, kueue = queued_cluster(4, elastic=elastic, replicas=6, least=2)
    await kueue.start()
    assert (status_of(cluster)["phase"], status_of(cluster)["workers"]) == ("Running", "3/6")
    assert counts(kueue) == [{"master": 1, "worker": 6}] * 2
    assert [each["message"] for each in status_of(cluster)["conditions"] if "message" in each] == [
        "3 of 6 members of worker; the others: waits for quota in queue team: "
        f"insufficient unused quota: {4 if elastic else 0} pods are left"
    ]
    before = uids(cluster)
    writes = cluster.kube.writes
    await cluster.run_operator()
    assert cluster.kube.writes == writes, "nothing is written while it waits for the others"
    kueue.quota = quota
    await kueue.settle()
    assert status_of(cluster)["workers"] == "6/6"
    assert before < uids(cluster)
    assert len(kueue.workloads()) == 1
    cluster.check_final_state()


async def test_a_job_has_no_pods_while_less_than_its_least_number_fits() -> None:
    cluster, kueue = queued_cluster(3, replicas=6, least=3)
    await kueue.start()
    assert cluster.kube.created_names == set()
    cluster.edit_role(minReplicas=2)
    await kueue.settle()
    assert status_of(cluster)["workers"] == "2/6"


async def test_a_lost_member_of_a_job_with_a_part_of_its_quota_is_replaced_and_no_other_added() -> (
    None
):
    cluster, kueue = queued_cluster(4, replicas=6)
    await kueue.start()
    end_training(cluster, pod_names(cluster)[0], 1)
    await kueue.settle()
    cluster.now += 60
    await kueue.settle()
    assert status_of(cluster)["workers"] == "3/6"


async def test_a_job_that_gives_back_of_a_part_of_its_quota_keeps_what_its_members_need() -> None:
    cluster, kueue = queued_cluster(4, replicas=6)
    await kueue.start()
    await cluster.apply(SCALE_INS, "fewer", count=4)
    await kueue.settle()
    assert status_of(cluster)["workers"] == "2/2"
    (workload,) = kueue.workloads()
    assert reclaimed(workload) == {"master": 0, "worker": 4}, "of the six that it asked for"


async def test_a_preempted_job_begins_again_with_the_members_that_still_fit() -> None:
    cluster, kueue = queued_cluster(4, replicas=6)
    await kueue.start()
    kueue.quota = 7
    await kueue.settle()
    assert status_of(cluster)["workers"] == "6/6"
    kueue.quota = 3
    kueue.evict()
    await kueue.settle()
    assert (status_of(cluster)["phase"], status_of(cluster)["workers"]) == ("Running", "2/6")


async def test_a_kueue_without_partial_admission_gets_no_workload_after_the_other() -> None:
    cluster, kueue = queued_cluster(4, partial=False, replicas=6)
    await kueue.start()
    assert counts(kueue) == [{"master": 1, "worker": 6}]
    assert cluster.kube.created_names == set()


# --- other sizes


@pytest.mark.parametrize(("elastic", "quota"), [(True, 5), (False, 8)])
async def test_a_job_grows_with_another_workload_while_its_pods_run_on(
    elastic: bool, quota: int
) -> None:
    cluster, kueue = queued_cluster(quota, elastic=elastic, replicas=2)
    await kueue.start()
    before = uids(cluster)
    await cluster.apply(SCALE_OUTS, "more", count=2)
    await kueue.settle()
    assert status_of(cluster)["workers"] == "4/4"
    assert before < uids(cluster)
    assert counts(kueue) == [{"master": 1, "worker": 4}], "the one before is gone"
    cluster.check_final_state()


async def test_growth_without_quota_waits_says_so_and_is_cancelled_with_its_plan() -> None:
    cluster, kueue = queued_cluster(4, replicas=2)
    await kueue.start()
    before = uids(cluster)
    await cluster.apply(SCALE_PLANS, "more", replicaResourceSpecs={"worker": {"replicas": 5}})
    await kueue.settle()
    plan = cluster.kube.objects[SCALE_PLANS, "more"]["status"]
    assert (plan["phase"], plan["message"]) == (
        "Pending",
        "waits for quota in queue team: insufficient unused quota: 4 pods are left",
    )
    assert counts(kueue) == [{"master": 1, "worker": 2}, {"master": 1, "worker": 5}]
    assert (status_of(cluster)["phase"], uids(cluster)) == ("Running", before)
    writes = cluster.kube.writes
    await cluster.run_operator()
    assert cluster.kube.writes == writes
    cluster.kube.remove(SCALE_PLANS, "more")
    await kueue.settle()
    assert counts(kueue) == [{"master": 1, "worker": 2}]
    assert uids(cluster) == before


async def test_an_edit_that_waits_for_quota_is_given_up_by_another_edit() -> None:
    cluster, kueue = queued_cluster(4, replicas=2)
    await kueue.start()
    cluster.edit_role(replicas=6)
    await kueue.settle()
    assert len(kueue.workloads()) == 2
    cluster.edit_role(replicas=3)
    await kueue.settle()
    assert status_of(cluster)["workers"] == "3/3"
    phases = sorted(each["status"]["phase"] for each in cluster.kube.all(SCALE_PLANS))
    assert phases == ["Succeeded", "Superseded"]
    assert counts(kueue) == [{"master": 1, "worker": 3}]


async def test_quota_of_removed_and_of_succeeded_members_is_released() -> None:
    cluster, kueue = queued_cluster(5, replicas=4)
    await kueue.start()
    await cluster.apply(SCALE_INS, "fewer", count=2)
    await kueue.settle()
    assert status_of(cluster)["workers"] == "2/2"
    (workload,) = kueue.workloads()
    assert reclaimed(workload) == {"master": 0, "worker": 2}
    end_training(cluster, pod_names(cluster)[0], 0)
    await kueue.settle()
    (workload,) = kueue.workloads()
    assert reclaimed(workload) == {"master": 0, "worker": 3}


async def test_a_job_that_has_given_quota_back_needs_it_again_to_grow() -> None:
    cluster, kueue = queued_cluster(5, replicas=4)
    await kueue.start()
    await cluster.apply(SCALE_INS, "fewer", count=2)
    await kueue.settle()
    kueue.quota = 3
    await cluster.apply(SCALE_OUTS, "more", count=1)
    await kueue.settle()
    assert status_of(cluster)["workers"] == "2/2"
    kueue.quota = 4
    await kueue.settle()
    assert status_of(cluster)["workers"] == "3/3"
    assert counts(kueue) == [{"master": 1, "worker": 3}]


async def test_more_of_a_resource_waits_for_quota_like_more_members() -> None:
    cluster, kueue = queued_cluster(5, elastic=False, replicas=2)
    await kueue.start()
    await cluster.apply(
        SCALE_PLANS, "larger", replicaResourceSpecs={"worker": {"resource": {"cpu": "8"}}}
    )
    await kueue.settle()
    assert cluster.kube.objects[SCALE_PLANS, "larger"]["status"]["phase"] == "Pending"
    kueue.quota = 6
    await kueue.settle()
    assert cluster.kube.objects[SCALE_PLANS, "larger"]["status"]["phase"] == "Executing"
    (workload,) = kueue.workloads()
    (worker,) = (each for each in workload["spec"]["podSets"] if each["name"] == "worker")
    assert worker["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "8"


async def test_a_workload_that_replaces_another_is_smaller_in_no_role_and_gives_back_the_rest() -> (
    None
):
    cluster, kueue = queued_cluster(9, replicas=2)
    cluster._body["spec"]["framework"] = "custom"
    roles = cluster._body["spec"]["replicaSpecs"]
    roles["other"] = roles["worker"]
    await kueue.start()
    sizes = {"worker": {"replicas": 4}, "other": {"replicas": 1}}
    await cluster.apply(SCALE_PLANS, "both", replicaResourceSpecs=sizes)
    await cluster.settle()
    assert counts(kueue)[-1] == {"master": 1, "worker": 4, "other": 2}
    await kueue.settle()
    (workload,) = kueue.workloads()
    assert reclaimed(workload) == {"master": 0, "worker": 0, "other": 1}
    assert cluster.kube.objects[SCALE_PLANS, "both"]["status"]["phase"] == "Succeeded"


async def test_an_added_role_waits_for_quota_and_a_removed_one_releases_it() -> None:
    cluster, kueue = queued_cluster(4, replicas=2)
    cluster._body["spec"]["framework"] = "custom"
    await kueue.start()
    before = uids(cluster)

    def add(spec: Json) -> None:
        spec["replicaSpecs"]["other"] = dict(spec["replicaSpecs"]["worker"])

    cluster.kube.edit(ELASTIC_JOBS, JOB, add)
    await kueue.settle()
    assert uids(cluster) == before
    assert counts(kueue)[-1] == {"master": 1, "other": 2, "worker": 2}
    kueue.quota = 8
    await kueue.settle()
    assert len(uids(cluster)) == 5
    assert len(kueue.workloads()) == 1
    cluster.kube.edit(ELASTIC_JOBS, JOB, lambda spec: spec["replicaSpecs"].pop("other"))
    await kueue.settle()
    (workload,) = kueue.workloads()
    assert reclaimed(workload)["other"] == 2
    assert uids(cluster) == before


@pytest.mark.parametrize(
    "template", [{}, {"spec": {"containers": 3}}, {"spec": {"containers": [{"name": "a"}]}}]
)
@pytest.mark.parametrize("gang", ["none", "volcano"])
async def test_an_added_role_whose_pods_cannot_be_created_does_not_affect_other_roles(
    template: Json, gang: str
) -> None:
    cluster, kueue = queued_cluster(4, replicas=2)
    cluster._body["spec"] |= {
        "framework": "custom",
        "runPolicy": {"schedulingPolicy": {"gang": gang}},
    }
    await kueue.start()
    before = uids(cluster)

    def add(spec: Json) -> None:
        spec["replicaSpecs"]["other"] = {**spec["replicaSpecs"]["worker"], "template": template}

    cluster.kube.edit(ELASTIC_JOBS, JOB, add)
    await kueue.settle()
    assert uids(cluster) == before
    (plan,) = cluster.kube.all(SCALE_PLANS)
    assert plan["status"]["phase"] == "Failed"
    assert "spec.replicaSpecs.other.template" in plan["status"]["message"]
    await cluster.apply(SCALE_OUTS, "more", count=1)
    await kueue.settle()
    assert before < uids(cluster)


async def test_pods_run_on_in_the_moment_between_two_workloads_and_not_for_ever() -> None:
    cluster, kueue = queued_cluster(4, replicas=2)
    await kueue.start()
    await cluster.apply(SCALE_OUTS, "more", count=1)
    await cluster.settle()
    before = uids(cluster)
    old, new = kueue.workloads()
    kueue._set(
        old, Finished=(True, "WorkloadSliceReplaced", ""), QuotaReserved=(False, "Replaced", "")
    )
    await reconcile_now(cluster)
    assert status_of(cluster)["phase"] == "Running"
    assert uids(cluster) == before
    cluster.now += 30
    await cluster.settle()
    assert condition(cluster, "Suspended") == ("True", "WaitingForQuota")
    kueue.admit()
    await kueue.settle()
    assert status_of(cluster)["phase"] == "Running"
    assert new["metadata"]["name"] != old["metadata"]["name"]


# --- eviction, suspension, and what others do


@pytest.mark.guarantee("preempted-by-kueue")
async def test_an_evicted_job_ends_its_pods_gives_its_quota_back_and_waits_again() -> None:
    cluster, kueue = queued_cluster(3, replicas=2)
    await kueue.start()
    kueue.evict()
    await cluster.run_operator()
    assert ending(cluster) == ["job-worker-0", "job-worker-1"], (
        "the master last, as in a suspension"
    )
    (workload,) = kueue.workloads()
    assert "admission" in workload["status"], "its quota is in use as long as there are pods"
    kueue.quota = 0
    await kueue.settle()
    assert cluster.kube.all(PODS) == []
    assert condition(cluster, "Suspended") == ("True", "WaitingForQuota")
    (workload,) = kueue.workloads()
    said = {each["type"]: each["status"] for each in workload["status"]["conditions"]}
    assert (said["QuotaReserved"], said["Admitted"], said["Requeued"]) == ("False", "False", "True")
    assert "admission" not in workload["status"]
    kueue.quota = 3
    await kueue.settle()
    assert status_of(cluster)["phase"] == "Running"
    assert status_of(cluster).get("restarts", 0) == 0


@pytest.mark.guarantee("preempted-by-kueue")
async def test_an_eviction_cancels_a_plan_that_runs() -> None:
    cluster, kueue = queued_cluster(5, replicas=2)
    await kueue.start()
    await cluster.apply(SCALE_PLANS, "more", replicaResourceSpecs={"worker": {"replicas": 4}})
    for _ in range(3):
        await cluster.run_operator()
        kueue.admit()
    assert cluster.kube.objects[SCALE_PLANS, "more"]["status"]["phase"] == "Executing"
    kueue.evict()
    kueue.quota = 0
    await kueue.settle()
    plan = cluster.kube.objects[SCALE_PLANS, "more"]["status"]
    assert plan["phase"] == "Cancelled"
    assert "waits for quota in queue team" in plan["message"]
    kueue.quota = 5
    await kueue.settle()
    assert status_of(cluster)["workers"] == "2/2"
    assert len(kueue.workloads()) == 1


async def test_a_suspended_job_has_no_quota() -> None:
    cluster, kueue = queued_cluster(3, replicas=2)
    await kueue.start()
    set_suspend(cluster, True)
    await kueue.settle()
    assert kueue.workloads() == []
    assert condition(cluster, "Suspended") == ("True", "Suspended")
    set_suspend(cluster, False)
    await kueue.settle()
    assert status_of(cluster)["phase"] == "Running"


async def test_a_deactivated_workload_stops_its_job_until_it_is_active_again() -> None:
    cluster, kueue = queued_cluster(3, replicas=2)
    await kueue.start()
    name = kueue.workloads()[0]["metadata"]["name"]
    cluster.kube.edit(KUEUE_WORKLOADS, name, lambda spec: spec.update(active=False))
    kueue.evict("Deactivated")
    await kueue.settle()
    assert status_of(cluster)["message"].startswith(f"waits until Workload {name} is active again")
    cluster.kube.edit(KUEUE_WORKLOADS, name, lambda spec: spec.update(active=True))
    await kueue.settle()
    assert status_of(cluster)["phase"] == "Running"


@pytest.mark.guarantee("kueue-removed")
async def test_a_running_job_continues_when_kueue_is_uninstalled() -> None:
    cluster, kueue = queued_cluster(3, replicas=2)
    await kueue.start()
    before = uids(cluster)

    def refused(resource: Resource, body: Json) -> None:
        if resource is KUEUE_WORKLOADS:
            raise NotFound(404, "NotFound", "the server could not find the requested resource")

    cluster.kube.before_create = refused
    for body in kueue.workloads():
        cluster.kube.remove(KUEUE_WORKLOADS, body["metadata"]["name"])
    with pytest.raises(
        AssertionError, match="does not settle"
    ):  # it asks again, with pauses in a real process
        await cluster.run_operator()
    assert uids(cluster) == before
    assert status_of(cluster)["phase"] == "Running"
    cluster.kube.before_create = None
    await kueue.settle()
    assert status_of(cluster)["phase"] == "Running"
    assert len(kueue.workloads()) == 1


@pytest.mark.guarantee("kueue-not-installed")
async def test_jobs_wait_without_log_lines_until_kueue_is_installed_and_then_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr("elasticjob_operator.work_queue.FIRST_PAUSE_SECONDS", 0.001)
    cluster, kueue = queued_cluster(3, replicas=2)
    cluster._body["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "high"

    monkeypatch.setattr("elasticjob_operator.work_queue.LONGEST_PAUSE_SECONDS", 0.01)
    operator = cluster.operator
    served = False
    get = cluster.kube.get

    def check(resource: Resource, _: Any = None) -> None:
        if resource.group == KUEUE_WORKLOADS.group and not served:
            raise NotFound(404, "", "404 page not found\n")

    async def getting(resource: Resource, namespace: str, name: str) -> Json:
        check(resource)
        return await get(resource, namespace, name)

    cluster.kube.before_create = check
    monkeypatch.setattr(cluster.kube, "get", getting)
    await cluster.create(ELASTIC_JOBS, cluster._body)
    await operator.watch()
    queue = WorkQueue(
        Reconciler(
            operator.session, operator.store, operator.executor, DEFAULTS, DecisionCosts()
        ).reconcile
    )
    try:
        queue.add(JobKey(NAMESPACE, JOB))
        await until("some attempts", lambda: queue.results["failed"] > 5)
        assert [record.getMessage() for record in caplog.records] == []
        assert (status_of(cluster)["phase"], cluster.kube.pods()) == ("Suspended", [])
        served = True
        await cluster.create(KUEUE_PRIORITIES, {"metadata": {"name": "high"}, "value": 7})
        await until("a Workload", lambda: len(kueue.workloads()) == 1)
    finally:
        await queue.abort()


async def test_a_new_operator_continues_with_the_existing_workloads() -> None:
    cluster, kueue = queued_cluster(4, replicas=2)
    await kueue.start()
    await cluster.apply(SCALE_OUTS, "more", count=3)
    await kueue.settle()
    before = [each["metadata"]["name"] for each in kueue.workloads()]
    cluster.operator = Operator(cluster.kube)
    cluster.operator.use_kueue()
    await kueue.settle()
    assert [each["metadata"]["name"] for each in kueue.workloads()] == before


@pytest.mark.parametrize("lie", ["no owner", "another job", "another name"])
async def test_a_workload_that_is_not_the_jobs_changes_nothing_for_it(lie: str) -> None:
    cluster, kueue = queued_cluster(0, replicas=2)
    await kueue.start()
    metadata = cluster.job().metadata
    owner: Json = {
        "apiVersion": names.API_VERSION,
        "kind": "ElasticJob",
        "name": JOB,
        "uid": metadata.uid,
    }
    owner["controller"] = True
    if lie == "another job":
        owner["uid"] = "other"
    said = {"status": "True", "reason": "Admitted", "message": ""}
    forged: Json = {
        "metadata": {
            "name": "forged" if lie == "another name" else workload_name(cluster.job(), 9),
            "namespace": NAMESPACE,
            "labels": {names.LABEL_JOB_UID: metadata.uid},
            "ownerReferences": [] if lie == "no owner" else [owner],
        },
        "spec": {"queueName": "team", "podSets": []},
        "status": {
            "admission": {},
            "conditions": [{"type": kind, **said} for kind in ("Admitted", "QuotaReserved")],
        },
    }
    await cluster.kube.create(KUEUE_WORKLOADS, NAMESPACE, forged)
    await cluster.settle()
    assert cluster.kube.created_names == set(), "no pod"
    assert condition(cluster, "Suspended") == ("True", "WaitingForQuota")


async def test_a_job_with_more_roles_than_pod_sets_of_a_workload_gets_a_message() -> None:
    cluster, kueue = queued_cluster(99, replicas=1)
    worker = cluster._body["spec"]["replicaSpecs"]["worker"]
    cluster._body["spec"]["framework"] = "custom"
    cluster._body["spec"]["replicaSpecs"] |= {f"role{number}": worker for number in range(7)}
    await kueue.start()
    assert "8 roles and the master are above the 8 pod sets" in status_of(cluster)["message"]
    assert kueue.workloads() == []


async def test_a_job_that_loses_its_queue_runs_on_without_a_workload() -> None:
    cluster, kueue = queued_cluster(3, replicas=2)
    await kueue.start()
    before = uids(cluster)
    edit_labels(cluster)
    await kueue.settle()
    assert kueue.workloads() == []
    assert uids(cluster) == before
    edit_labels(cluster, **{KUEUE_QUEUE: "team"})
    kueue.quota = 0
    await kueue.settle()
    assert condition(cluster, "Suspended") == ("True", "WaitingForQuota")


async def test_without_the_option_a_queue_label_changes_nothing_but_the_labels_of_pods() -> None:
    cluster = new_cluster(replicas=2)
    cluster._body["metadata"]["labels"] = {KUEUE_QUEUE: "team"}
    await cluster.start()
    assert status_of(cluster)["phase"] == "Running"
    assert cluster.kube.all(KUEUE_WORKLOADS) == []
    assert all(pod["metadata"]["labels"][KUEUE_QUEUE] == "team" for pod in cluster.kube.all(PODS))
