"""Whatever somebody writes into a status.

No more pods than the spec allows, no loop, and the field is named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from elasticjob_api.limits import MAX_COUNTER
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_INS, SCALE_OUTS, SCALE_PLANS, Resource

from tests.support.simulator.cluster import JOB, Cluster
from tests.support.simulator.watched_cluster import MOST, WatchedCluster

Json = dict[str, Any]
TIME = "2026-01-01T00:00:00Z"


ROLE: list[tuple[Json, str]] = [
    ({"indices": "5000000-8000000"}, "worker.indices"),
    ({"indices": "0-99999"}, "worker.indices"),
    ({"indices": "x"}, "worker.indices"),
    ({"indices": ""}, "worker.indices"),
    ({"indices": "0-9999"}, ""),
    ({"indices": "7,9,100000", "desired": 3}, ""),
    ({"desired": 10_000}, ""),
    ({"desired": 10**9}, "worker.desired"),
    ({"desired": -1}, "worker.desired"),
    ({"succeededIndices": "0-99999999"}, "worker.succeededIndices"),
    ({"startedIndices": "-"}, "worker.startedIndices"),
    ({"startedIndices": "0-99999"}, "worker.startedIndices"),
    ({"startedIndices": "0-9999"}, ""),
    ({"restartsByIndex": {"abc": 1}}, "worker.restartsByIndex.abc"),
    ({"restartsByIndex": {"0": -5, "1": 10**18}}, "worker.restartsByIndex"),
    ({"uncountedByIndex": {"²": 1, "0": MAX_COUNTER}}, "worker.uncountedByIndex"),
    ({"backOff": {"0": {"failures": 10**9, "until": "9999-12-31T23:59:59Z"}}}, ""),
    ({"backOff": {"0": {"failures": 3, "until": "soon"}}}, "worker.backOff.0.until"),
    ({"backOff": {"0": {"failures": 3, "until": "2026-02-30T00:00:00Z"}}}, ""),
    ({"highestIndex": -1}, "worker.highestIndex"),
    ({"highestIndex": 10**7}, "worker.highestIndex"),
    ({"incarnations": MAX_COUNTER}, "worker.incarnations"),
    ({"incarnations": "many"}, "worker.incarnations"),
    ({"incarnationByIndex": {"0": MAX_COUNTER, "x": 1}}, "worker.incarnationByIndex.x"),
    ({"resources": {"cpu": "1e900"}}, "worker.resources"),
    ({"resources": {"cpu": "0"}}, "worker.resources"),
    ({"resources": {"cpu": "9"}}, "worker.resources"),
    ({"resources": {"rdma/hca": "500m"}}, "worker.resources"),
    ({"resources": {"hugepages-2Mi": "1Gi"}}, "worker.resources.hugepages-2Mi"),
    ({"resourcesByIndex": {"0": {"memory": "1e99999"}}}, "worker.resourcesByIndex"),
    ({"active": 10**12, "ready": -1}, "worker.active"),
]
JOB_FIELDS: list[tuple[Json, str]] = [
    ({"replicaStatuses": {}}, "replicaStatuses.worker is missing"),
    ({"replicaStatuses": {"worker": 5}}, "replicaStatuses.worker"),
    ({"replicaStatuses": "none"}, "status.replicaStatuses"),
    ({"phase": "Odd"}, "status.phase"),
    ({"phase": None}, ""),
    ({"phase": "Suspended"}, ""),
    ({"currentPlan": "../../x"}, "status.currentPlan"),
    ({"currentPlan": "another-plan"}, ""),
    ({"currentPlan": "job-back-1"}, ""),
    ({"master": {"incarnations": 0}}, "status.master.incarnations"),
    ({"master": {"incarnations": MAX_COUNTER}}, "status.master.incarnations"),
    (
        {
            "master": {
                "incarnations": 1,
                "backOff": {"failures": 9, "until": "9999-12-31T23:59:59Z"},
            }
        },
        "",
    ),
    ({"startTime": "0000-00-00T00:00:00Z"}, "status.startTime"),
    ({"startTime": "2026-02-30T00:00:00Z"}, "status.startTime"),
    ({"conditions": [{"type": "x" * 500, "status": "True"}]}, "status.conditions[0].type"),
    (
        {"conditions": [{"type": f"T{n}", "status": "True"} for n in range(1000)]},
        "status.conditions",
    ),
    ({"conditions": [{"status": "True"}, 7]}, "status.conditions[0]"),
    ({"message": "x" * 100_000}, "status.message"),
    ({"workers": "9/9", "restarts": -1, "selector": "a=b"}, "status.restarts"),
    (
        {"progress": {"step": -1, "metrics": {"m" * 99: 1.0}, "stragglers": ["A B"] * 200}},
        "status.progress",
    ),
    ({"progress": {"stalledSince": "long ago"}}, "status.progress.stalledSince"),
    ({"progress": []}, "status.progress"),
    ({"observedGeneration": -7}, "status.observedGeneration"),
]


async def settled(cluster: WatchedCluster, named: str) -> None:
    """Let everything come to rest; the job must be as it was asked for, and the field be named."""
    await cluster.settle()
    cluster.check_final_state()
    assert len([pod for pod in cluster.kube.pods() if pod["status"]["phase"] == "Running"]) == 2
    assert cluster.job().status.phase == "Running"
    repaired = [event for event in cluster.events if event.startswith("StatusRepaired")]
    assert not named or any(named in event for event in repaired), (named, cluster.events)
    assert len(repaired) <= 2, repaired


@pytest.mark.guarantee("foreign-status-writes")
@pytest.mark.parametrize(("fields", "named"), ROLE, ids=str)
async def test_a_role_whose_status_is_tampered_with_comes_back_to_its_size(
    fields: Json, named: str
) -> None:
    cluster = WatchedCluster(autoscaling={"resourceLimits": {"cpu": "8"}})
    await cluster.start()
    cluster.tamper_role(**fields)
    await settled(cluster, named)


@pytest.mark.guarantee("foreign-status-writes")
@pytest.mark.parametrize(("fields", "named"), JOB_FIELDS, ids=lambda value: str(value)[:60])
async def test_a_job_whose_status_is_tampered_with_comes_back_to_its_size(
    fields: Json, named: str
) -> None:
    cluster = WatchedCluster()
    await cluster.start()
    cluster.tamper(ELASTIC_JOBS, JOB, **fields)
    await settled(cluster, named)


async def test_a_member_without_its_status_keeps_its_pod() -> None:
    cluster = WatchedCluster()
    await cluster.start()
    await cluster.apply(
        SCALE_PLANS, "gap", removePods=[{"role": "worker", "index": 0}], createPods=[{"index": 4}]
    )
    await cluster.settle()
    before = {pod["metadata"]["uid"] for pod in cluster.kube.pods()}
    cluster.tamper_role(indices="5000000-8000000")
    await settled(cluster, "worker.indices")
    assert {pod["metadata"]["uid"] for pod in cluster.kube.pods()} == before


PLAN_STATUSES: list[tuple[Json, str]] = [
    ({"targets": {"worker": "0-9999"}}, ""),
    ({"targets": {"worker": "0-99999"}}, "status.targets"),
    ({"targets": {"worker": "none"}}, "status.targets.worker"),
    ({"targets": {"evaluator": "0-3"}}, "status.targets"),
    ({"targets": {}, "before": {}}, ""),
    ({"before": {"worker": "0-9999"}}, ""),
    ({"specReplicas": {"worker": -4, "evaluator": 2}}, "status.specReplicas"),
    ({"resourcesByIndex": {"worker": {"2": {"cpu": "1e900"}}}}, "status.resourcesByIndex"),
    (
        {"migrations": [{"role": "boss", "index": 0, "replacement": 9, "phase": "Starting"}]},
        "status.migrations",
    ),
    (
        {
            "migrations": [
                {"role": "worker", "index": 0, "replacement": n + 9, "phase": "Starting"}
                for n in range(500)
            ]
        },
        "status.migrations",
    ),
    (
        {"migrations": [{"role": "worker", "index": -1, "replacement": 2, "phase": "Done"}]},
        "status.migrations",
    ),
    ({"startTime": "1"}, "status.startTime"),
    ({"executionTime": "2026-02-30T00:00:00Z"}, "status.executionTime"),
    ({"startTime": None, "executionTime": None}, ""),
    ({"drainingPods": ["x" * 300, 4, "job-worker-0"]}, "status.drainingPods"),
    ({"phase": "Half"}, "status.phase"),
    (
        {
            "phase": "Draining",
            "executionTime": None,
            "drainingPods": [f"p-{n}" for n in range(5000)],
        },
        "",
    ),
]


@pytest.mark.guarantee("foreign-status-writes")
@pytest.mark.parametrize(("fields", "named"), PLAN_STATUSES, ids=lambda value: str(value)[:60])
async def test_a_plan_whose_status_is_tampered_with_ends_and_the_job_has_the_size_of_its_spec(
    fields: Json, named: str
) -> None:
    cluster = WatchedCluster()
    await cluster.start()
    await cluster.apply(
        SCALE_PLANS, "grow", replicaResourceSpecs={"worker": {"replicas": 4}}, timeoutSeconds=30
    )
    await until(
        cluster,
        lambda: (
            cluster.kube.objects[SCALE_PLANS, "grow"].get("status", {}).get("phase") == "Executing"
        ),
    )
    cluster.tamper(SCALE_PLANS, "grow", **fields)
    for _ in range(60):
        await cluster.run_operator()
        cluster.run_pods()
    await cluster.settle()
    cluster.check_final_state()
    job = cluster.job()
    assert len(cluster.kube.pods()) == job.spec.replica_specs["worker"].size <= MOST
    assert not named or any(f"ScalePlan grow: {named}" in event for event in cluster.events), (
        cluster.events
    )


@pytest.mark.guarantee("foreign-status-writes")
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"phase": "Odd"}, "status.phase"),
        ({"plan": "NO PLAN"}, "status.plan"),
        ({"plan": "no-plan"}, ""),
        ({"pods": 5, "completionTime": "x"}, "status.pods"),
    ],
)
@pytest.mark.parametrize("resource", [SCALE_OUTS, SCALE_INS], ids=lambda resource: resource.kind)
async def test_a_request_whose_status_is_tampered_with_ends(
    resource: Resource, fields: Json, named: str
) -> None:
    cluster = WatchedCluster()
    await cluster.start()
    await cluster.apply(resource, "request", count=1)
    cluster.tamper(resource, "request", **fields)
    await cluster.settle()
    cluster.check_final_state()
    assert not named or any(
        f"{resource.kind} request: {named}" in event for event in cluster.events
    )


async def until(cluster: Cluster, holds: Callable[[], bool]) -> None:
    for _ in range(50):
        if holds():
            return
        await cluster.run_operator()
        if holds():
            return
        cluster.run_pods()
    raise AssertionError("never so")
