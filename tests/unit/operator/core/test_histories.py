"""Tests jobs on a cluster in memory with faults, requests and an operator killed at any write."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_INS, SCALE_OUTS, SCALE_PLANS
from elasticjob_operator.core.model.actions import CreatePlan
from elasticjob_operator.core.scaling.plan_manifests import plan_for_request
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.job_cluster import pod_names, set_suspend
from tests.support.simulator.cluster import Cluster, pick


def status(cluster: Cluster, resource: Any, name: str) -> Json:
    found: Json = cluster.kube.objects[resource, name].get("status", {})
    return found


async def test_a_job_gets_its_master_and_workers_and_is_then_not_changed() -> None:
    cluster = Cluster(replicas=3)
    await cluster.start()
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1", "job-worker-2"]
    assert pod_names(cluster, names.ROLE_MASTER) == ["job-master"]
    assert status(cluster, ELASTIC_JOBS, "job")["phase"] == "Running"
    writes = cluster.kube.writes
    await cluster.run_operator()
    await cluster.run_operator()
    assert cluster.kube.writes == writes, "writes at rest"


async def test_scale_in_of_a_named_pod_drains_it_and_its_index_gets_a_new_name_later() -> None:
    cluster = Cluster(replicas=3)
    await cluster.start()
    await cluster.apply(SCALE_INS, "less", podNames=["job-worker-1"])
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-0", "job-worker-2"]
    (plan,) = cluster.kube.all(SCALE_PLANS)
    assert plan["status"]["removedPods"] == ["job-worker-1"]
    assert "drainingPods" not in plan["status"], "only who is draining now"
    assert not plan["status"].get("forcedPods")
    await cluster.apply(SCALE_OUTS, "more", count=1)
    await cluster.settle()
    assert pod_names(cluster) == ["job-worker-0", "job-worker-1-1", "job-worker-2"]
    cluster.check_final_state()


@pytest.mark.guarantee("repeated-or-stale-plans")
async def test_an_edit_of_replicas_is_a_plan_and_a_refused_edit_is_tried_once() -> None:
    cluster = Cluster(replicas=2, autoscaling={"resourceLimits": {"cpu": "4"}})
    await cluster.start()
    cluster.edit_role(replicas=4)
    await cluster.settle()
    assert len(pod_names(cluster)) == 4
    cluster.edit_role(replicas=5)
    await cluster.settle()
    assert len(pod_names(cluster)) == 4
    assert [plan["status"]["phase"] for plan in cluster.kube.all(SCALE_PLANS)] == [
        "Succeeded",
        "Failed",
    ]
    cluster.check_final_state()


async def begun(cluster: Cluster, count: int) -> None:
    """Begin to add members, which do not become ready yet."""
    await cluster.start()
    await cluster.apply(SCALE_OUTS, "a", count=count)
    for _ in range(3):
        await cluster.run_operator()
    assert [plan["status"]["phase"] for plan in cluster.kube.all(SCALE_PLANS)] == ["Executing"]


@pytest.mark.guarantee("plan-runs-once-in-order")
async def test_an_edit_during_a_plan_becomes_a_plan_at_once_and_runs_before_later_requests() -> (
    None
):
    cluster = Cluster(replicas=2)
    await begun(cluster, count=1)
    cluster.edit_role(replicas=4)
    await cluster.run_operator()
    await cluster.run_operator()
    (plan,) = [plan for plan in cluster.kube.all(SCALE_PLANS) if plan["spec"]["source"] == "Spec"]
    assert plan["status"]["phase"] == "Pending"
    await cluster.apply(SCALE_INS, "later", count=3)
    await cluster.settle()
    assert status(cluster, SCALE_INS, "later")["phase"] == "ScaleSucceeded", (
        "it counts from the edited size"
    )
    assert len(pod_names(cluster)) == cluster.job().spec.replica_specs["worker"].replicas == 1
    assert (
        len([plan for plan in cluster.kube.all(SCALE_PLANS) if plan["spec"]["source"] == "Spec"])
        == 1
    )
    cluster.check_final_state()


@pytest.mark.guarantee("plan-runs-once-in-order")
@pytest.mark.parametrize("suspended_after", [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, None])
async def test_no_plan_overwrites_a_size_that_a_user_has_set(
    suspended_after: int | None,
) -> None:
    cluster = Cluster(replicas=3)
    await begun(cluster, count=1)
    await cluster.apply(SCALE_OUTS, "b", count=1)
    cluster.edit_role(replicas=2)
    for _ in range(suspended_after or 0):
        await cluster.run_operator()
        cluster.run_pods()
    if suspended_after is not None:
        set_suspend(cluster, True)
        await cluster.settle()
        set_suspend(cluster, False)
    await cluster.settle()
    assert len(pod_names(cluster)) == cluster.job().spec.replica_specs["worker"].replicas == 2
    cluster.check_final_state()


@pytest.mark.guarantee("plan-runs-once-in-order", "overlapping-requests")
async def test_requests_are_carried_out_in_the_order_of_their_creation() -> None:
    cluster = Cluster(replicas=2)
    await cluster.start()
    await cluster.apply(SCALE_OUTS, "a", count=4)
    await cluster.apply(SCALE_INS, "b", count=3)
    await cluster.apply(SCALE_OUTS, "c", count=4)
    await cluster.settle()
    assert status(cluster, SCALE_OUTS, "c")["message"].startswith("spec.count: 4 more than 3: 7")
    assert (
        status(cluster, SCALE_OUTS, "a")["phase"]
        == status(cluster, SCALE_INS, "b")["phase"]
        == "ScaleSucceeded"
    )
    assert cluster.job().spec.replica_specs["worker"].replicas == 3
    cluster.check_final_state()


@pytest.mark.guarantee("flood-of-connections")
async def test_a_master_killed_for_memory_is_replaced_and_counted() -> None:
    cluster = Cluster(replicas=1)
    await cluster.start()
    [master] = cluster.kube.pods(names.ROLE_MASTER)
    assert master["spec"]["containers"][0]["resources"]["limits"]["memory"] == "512Mi"
    cluster.end("job-master", 137, "OOMKilled")
    await cluster.settle()
    assert pod_names(cluster, names.ROLE_MASTER) == ["job-master-1"]
    assert cluster.job().status.master.restarts == 1
    assert cluster.job().status.phase == "Running"


async def history(cluster: Cluster, rng: random.Random, steps: int) -> None:
    """Faults, requests and crashes in a random order."""
    await cluster.start()
    for step in range(steps):
        event = rng.randrange(10)
        pods = [
            p["metadata"]["name"]
            for p in cluster.kube.all(PODS)
            if p["status"]["phase"] in ("Pending", "Running")
        ]
        if event == 0:
            await cluster.apply(SCALE_OUTS, f"out{step}", count=rng.randrange(1, 4))
        elif event == 1:
            await cluster.apply(SCALE_INS, f"in{step}", count=rng.randrange(1, 3))
        elif event == 2 and pods:
            await cluster.apply(SCALE_INS, f"named{step}", podNames=[pick(rng, pods)])
        elif event == 3:
            size = rng.randrange(1, 7)
            source = pick(rng, ["Auto", "Manual"])
            await cluster.apply(
                SCALE_PLANS,
                f"plan{step}",
                source=source,
                replicaResourceSpecs={"worker": {"replicas": size}},
            )
        elif event == 4:
            size = rng.randrange(1, 7)
            cluster.edit_role(replicas=size)
        elif event == 5 and pods:
            # Deleted by a user: gone at once, or for a while still there with its processes.
            (cluster.kube.remove if rng.random() < 0.5 else cluster.kube.mark_deleted)(
                PODS, pick(rng, pods)
            )
        elif event == 6 and pods:
            name = pick(rng, pods)
            cluster.end(name, pick(rng, [143, 143, 1]))
        elif event == 7:
            cluster.kube.crash_in = rng.randrange(1, 12)
        await cluster.run_operator()
        if rng.random() < 0.7:
            cluster.run_pods()
    cluster.kube.crash_in = None
    await cluster.settle()


@pytest.mark.guarantee("converges-to-desired-pods")
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 6), steps=st.integers(1, 25))
def test_any_history_of_faults_ends_with_exactly_the_desired_pods(
    seed: int, size: int, steps: int
) -> None:
    cluster = Cluster(replicas=size, worker={"restartLimit": 100}, runPolicy={"backoffLimit": 1000})
    asyncio.run(history(cluster, random.Random(seed), steps))
    cluster.check_final_state()
    spec = cluster.job().spec.replica_specs["worker"]
    replica = cluster.job().status.replica_statuses["worker"]
    assert spec.replicas == replica.desired


SCENARIO_WRITES = 45


@pytest.mark.guarantee("operator-can-be-killed", "operator-killed-between-writes")
@pytest.mark.parametrize("write", range(1, SCENARIO_WRITES))
async def test_an_operator_killed_before_any_write_is_carried_on_by_the_next(write: int) -> None:
    cluster = Cluster(replicas=2)
    cluster.kube.crash_in = write
    await cluster.start()
    await cluster.apply(SCALE_OUTS, "more", count=2)
    await cluster.settle()
    await cluster.apply(SCALE_INS, "less", podNames=[cluster.kube.pods()[0]["metadata"]["name"]])
    await cluster.settle()
    cluster.check_final_state()
    assert (
        status(cluster, SCALE_OUTS, "more")["phase"]
        == status(cluster, SCALE_INS, "less")["phase"]
        == "ScaleSucceeded"
    )
    assert cluster.job().status.replica_statuses["worker"].desired == 3


@pytest.mark.guarantee("lost-answer-of-a-create")
@pytest.mark.parametrize("write", range(1, SCENARIO_WRITES, 3))
async def test_a_lost_answer_changes_nothing(write: int) -> None:
    cluster = Cluster(replicas=2)
    cluster.kube.lose_answer_in = write
    await cluster.start()
    await cluster.apply(SCALE_OUTS, "more", count=2)
    await cluster.settle()
    cluster.check_final_state()
    assert cluster.job().status.replica_statuses["worker"].desired == 4


async def test_a_plan_is_created_once_if_its_answer_is_lost_and_it_is_not_observed_yet() -> None:
    cluster = Cluster(replicas=2)
    await cluster.start()
    await cluster.apply(SCALE_OUTS, "more", count=1)
    await cluster.operator.watch()
    observed = cluster.operator.store.observed(cluster.job())
    body = plan_for_request(observed, observed.scale_outs[0])
    for _ in range(2):
        await cluster.operator.executor.execute(observed.job, [CreatePlan(body)])
    assert len(cluster.kube.all(SCALE_PLANS)) == 1
