"""Tests that a job is suspended and resumed, also while a plan changes its size."""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_api.meta import Json
from elasticjob_api.times import parse_time
from elasticjob_kube.resources import PODS, SCALE_INS, SCALE_OUTS, SCALE_PLANS

from tests.support.job_cluster import (
    condition,
    end_training,
    ending,
    new_cluster,
    pod_names,
    set_suspend,
    status_of,
)
from tests.support.simulator.cluster import Cluster, Operator
from tests.support.thorough import crash_matrix


def images_of(cluster: Cluster) -> list[str]:
    pods = cluster.kube.all(PODS)
    return sorted(each["image"] for pod in pods for each in pod["spec"]["containers"])


async def test_a_suspended_job_drains_its_members_before_its_master_and_reports_how_far_it_is() -> (
    None
):
    cluster = new_cluster(replicas=2)
    await cluster.start()
    started = status_of(cluster)["startTime"]
    images = images_of(cluster)
    set_suspend(cluster, True)
    await cluster.run_operator()
    assert ending(cluster) == ["job-worker-0", "job-worker-1"], "the master last"
    assert status_of(cluster)["phase"] == "Running"
    assert status_of(cluster)["message"] == "suspending: 3 pods are draining"
    assert condition(cluster, "Suspended") == ("False", "Suspending")
    await cluster.settle()
    assert cluster.kube.all(PODS) == []
    assert status_of(cluster)["phase"] == "Suspended"
    assert condition(cluster, "Suspended") == ("True", "Suspended")
    assert condition(cluster, "Running")[0] == "False"
    assert "startTime" not in status_of(cluster)
    writes = cluster.kube.writes
    await cluster.run_operator()
    assert cluster.kube.writes == writes
    set_suspend(cluster, False)
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Running"
    assert condition(cluster, "Suspended") == ("False", "Resumed")
    assert images_of(cluster) == images
    assert parse_time(status_of(cluster)["startTime"]) > parse_time(started), (
        "its time to be active begins anew"
    )
    assert (
        status_of(cluster).get("restarts", 0) == status_of(cluster).get("uncountedRestarts", 0) == 0
    )
    cluster.check_final_state()


async def test_a_job_that_is_created_suspended_has_no_pods_until_it_is_resumed() -> None:
    cluster = new_cluster(runPolicy={"suspend": True})
    await cluster.start()
    assert cluster.kube.created_names == set()
    assert status_of(cluster)["phase"] == "Suspended"
    set_suspend(cluster, False)
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Running"


REQUESTS: list[tuple[Any, Json, int]] = [  # and the size of a job of three when they are done
    (SCALE_OUTS, {"count": 2}, 5),
    (SCALE_INS, {"count": 2}, 1),
    (SCALE_INS, {"podNames": ["job-worker-0"]}, 2),
    (
        SCALE_PLANS,
        {"replicaResourceSpecs": {"worker": {"replicas": 5, "resource": {"cpu": "2"}}}},
        5,
    ),
    (SCALE_PLANS, {"createPods": [{}], "removePods": [{"name": "job-worker-1"}]}, 3),
    (SCALE_PLANS, {"migratePods": [{"name": "job-worker-1", "resource": {"cpu": "2"}}]}, 3),
]


async def suspended_at(resource: Any, spec: Json, write: int, crash: int | None = None) -> Cluster:
    """Suspend a job of three when its change has come to the n-th write.

    The operator that was at it has died.
    """
    cluster = new_cluster(replicas=3)
    await cluster.start()
    await cluster.apply(resource, "change", **spec)
    cluster.kube.crash_in = write
    for _ in range(20):
        if not await cluster.run_operator():
            break
        cluster.run_pods()
    cluster.kube.crash_in = crash
    set_suspend(cluster, True)
    await cluster.settle()
    cluster.kube.crash_in = None
    return cluster


@pytest.mark.guarantee("suspended-during-a-plan")
@pytest.mark.parametrize(
    ("resource", "spec", "size", "write"),
    crash_matrix([(f"{r.kind}-{next(iter(s))}", (r, s, n)) for r, s, n in REQUESTS], range(1, 16)),
)
async def test_a_job_suspended_in_the_middle_of_a_change_comes_back_with_one_size(
    resource: Any, spec: Json, size: int, write: int
) -> None:
    cluster = await suspended_at(resource, spec, write)
    assert cluster.kube.all(PODS) == []
    assert status_of(cluster)["phase"] == "Suspended"
    ends = {
        plan["metadata"]["name"]: plan["status"]["phase"] for plan in cluster.kube.all(SCALE_PLANS)
    }
    assert set(ends.values()) <= {"Cancelled", "Failed", "Succeeded"}
    replica = cluster.job().status.replica_statuses["worker"]
    assert replica.desired in ((3, size) if write > 6 else (3,)), (
        "the size of before, or what the last step has stored"
    )
    assert replica.desired == cluster.job().spec.replica_specs["worker"].replicas
    set_suspend(cluster, False)
    await cluster.settle()
    cluster.check_final_state()
    assert len(pod_names(cluster)) == replica.desired
    assert cluster.job().spec.replica_specs["worker"].replicas == replica.desired


@pytest.mark.guarantee("suspended-during-a-plan")
@pytest.mark.parametrize(
    ("resource", "spec", "write", "crash"),
    crash_matrix(
        [(f"{r.kind}-{write}", (r, s, write)) for r, s, _ in REQUESTS[:2] for write in (3, 6)],
        range(1, 12),
    ),
)
async def test_an_operator_that_dies_while_it_suspends_is_carried_on_by_the_next(
    resource: Any, spec: Json, write: int, crash: int
) -> None:
    cluster = await suspended_at(resource, spec, write, crash)
    assert cluster.kube.all(PODS) == []
    assert cluster.job().status.replica_statuses["worker"].desired == 3
    set_suspend(cluster, False)
    await cluster.settle()
    cluster.check_final_state()
    assert len(pod_names(cluster)) == 3


@pytest.mark.guarantee("suspended-during-a-plan")
@pytest.mark.parametrize("operator", ["there", "away"])
@pytest.mark.parametrize(("count", "resource"), [(2, SCALE_OUTS), (1, SCALE_INS)])
async def test_a_job_whose_plan_is_deleted_and_that_is_suspended_has_the_size_of_its_spec(
    count: int, resource: Any, operator: str
) -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    await cluster.apply(resource, "change", count=count)
    for _ in range(3):
        await cluster.run_operator()
    (plan,) = cluster.kube.all(SCALE_PLANS)
    assert plan["status"]["phase"] in ("Draining", "Executing")
    cluster.kube.remove(SCALE_PLANS, plan["metadata"]["name"])
    cluster.kube.remove(resource, "change")
    if operator == "there":
        await cluster.run_operator()
    set_suspend(cluster, True)
    cluster.operator = Operator(cluster.kube)
    await cluster.settle()
    assert cluster.job().status.replica_statuses["worker"].desired == 2
    assert cluster.kube.all(PODS) == []
    set_suspend(cluster, False)
    await cluster.settle()
    cluster.check_final_state()
    assert len(pod_names(cluster)) == 2


async def test_an_edit_of_replicas_while_suspended_is_carried_out_when_the_job_comes_back() -> None:
    cluster = new_cluster(replicas=2, runPolicy={"suspend": True})
    await cluster.start()
    cluster.edit_role(replicas=4)
    await cluster.settle()
    assert cluster.kube.all(SCALE_PLANS) == []
    set_suspend(cluster, False)
    await cluster.settle()
    assert len(pod_names(cluster)) == 4
    cluster.check_final_state()


async def test_a_member_that_succeeds_while_the_job_is_suspended_has_succeeded() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    set_suspend(cluster, True)
    await cluster.run_operator()
    end_training(cluster, "job-worker-0", 0)
    await cluster.settle()
    set_suspend(cluster, False)
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-1-1"]
    end_training(cluster, "job-worker-1-1", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"


async def test_a_job_whose_last_member_succeeds_while_it_is_suspended_has_succeeded() -> None:
    cluster = new_cluster(replicas=1)
    await cluster.start()
    set_suspend(cluster, True)
    await cluster.run_operator()
    end_training(cluster, "job-worker-0", 0)
    await cluster.settle()
    assert cluster.job().status.phase == "Succeeded"


async def test_a_suspension_is_undone_before_it_is_complete() -> None:
    cluster = new_cluster(replicas=2)
    await cluster.start()
    set_suspend(cluster, True)
    await cluster.run_operator()
    set_suspend(cluster, False)
    await cluster.settle()
    assert status_of(cluster)["phase"] == "Running"
    cluster.check_final_state()
