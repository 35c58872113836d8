"""Tests statuses that other clients have written.

While a status is invalid, the operator does not touch the job and reports the wrong field. It never
creates more pods than the spec allows.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from elasticjob_api.limits import MAX_COUNTER, MAX_MESSAGE_CHARACTERS
from elasticjob_api.meta import Condition, Json
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_INS, SCALE_OUTS, SCALE_PLANS, Resource
from elasticjob_operator.core.model import patches
from msgspec.structs import replace

from tests.support.simulator.cluster import JOB, Cluster
from tests.support.simulator.fake_kube import copied
from tests.support.simulator.watched_cluster import MOST, WatchedCluster

INVALID_ROLES: list[tuple[Json, str]] = [
    ({"indices": "0-99999"}, "worker.indices: '0-99999' is not a set"),
    ({"indices": ""}, "worker.indices is empty, but desired is 2"),
    ({"startedIndices": "0-99999"}, "worker.startedIndices"),
    ({"succeededIndices": "4-2"}, "worker.succeededIndices"),
    ({"highestIndex": 0}, "worker.highestIndex: 0 is below 1"),
    ({"incarnations": MAX_COUNTER}, "worker.incarnations"),
    ({"incarnationByIndex": {"0": 7}}, "worker.incarnations: 0 is below 7"),
    ({"resources": {"cpu": "1e900"}}, "worker.resources.cpu"),
    ({"resources": {"cpu": "0"}}, "worker.resources.cpu"),
    ({"resources": {"rdma/hca": "500m"}}, "worker.resources.rdma/hca"),
    ({"resourcesByIndex": {"0": {"memory": "1e99999"}}}, "worker.resourcesByIndex.0.memory"),
]
INVALID_JOBS: list[tuple[Json, str]] = [
    ({"replicaStatuses": {}}, "status.replicaStatuses.worker is missing"),
    ({"master": {"incarnations": 0}}, "status.master.incarnations: 0 is below 1"),
    ({"master": {"incarnations": MAX_COUNTER}}, "status.master.incarnations"),
    ({"startTime": "2026-02-30T00:00:00Z"}, "status.startTime"),
]


async def run(cluster: Cluster) -> None:
    for _ in range(5):
        await cluster.run_operator()


async def is_left_alone(cluster: WatchedCluster, reason: str) -> None:
    """Check that the operator reports the error once, and changes nothing else."""
    await run(cluster)
    before = {key: item["metadata"] for key, item in cluster.kube.objects.items()}
    stalled = next(each for each in cluster.job().status.conditions if each.type == "Stalled")
    assert (stalled.status, stalled.reason) == ("True", "StatusInvalid")
    assert reason in stalled.message
    remedy = "delete the ScalePlan" if "ScalePlan" in reason else "--subresource=status"
    assert remedy in stalled.message
    await run(cluster)
    assert {key: item["metadata"] for key, item in cluster.kube.objects.items()} == before
    assert len([event for event in await cluster.events() if "StatusInvalid" in event]) == 1


async def works_again(cluster: WatchedCluster) -> None:
    await cluster.settle()
    cluster.check_final_state()
    conditions = {each.type: each for each in cluster.job().status.conditions}
    assert conditions["Stalled"].status == "False"
    assert conditions["Ready"].status == "True"


@pytest.mark.guarantee("foreign-status-writes")
@pytest.mark.parametrize(("fields", "reason"), [*INVALID_ROLES, *INVALID_JOBS], ids=str)
async def test_a_job_is_left_alone_until_its_status_is_valid_again(
    fields: Json, reason: str
) -> None:
    cluster = WatchedCluster()
    await cluster.start()
    valid = copied(cluster.kube.objects[ELASTIC_JOBS, JOB]["status"])
    pods = {pod["metadata"]["uid"] for pod in cluster.kube.pods()}
    if (fields, reason) in INVALID_ROLES:
        cluster.tamper_role(**fields)
    else:
        cluster.tamper(ELASTIC_JOBS, JOB, **fields)
    await is_left_alone(cluster, reason)
    cluster.tamper(
        ELASTIC_JOBS,
        JOB,
        **{key: each for key, each in valid.items() if key in (*fields, "replicaStatuses")},
    )
    await works_again(cluster)
    assert {pod["metadata"]["uid"] for pod in cluster.kube.pods()} == pods


@pytest.mark.guarantee("foreign-status-writes")
@pytest.mark.parametrize(
    "fields",
    [
        {"indices": "0-9999"},
        {"indices": "7,9,100000", "desired": 3},
        {"desired": 10_000},
        {"startedIndices": "0-9999", "highestIndex": 9999},
        {"highestIndex": 100_000},
        {"incarnations": 1000, "incarnationByIndex": {"0": 1000}},
        {"active": 10_000, "ready": 0},
        {"backOff": {"0": {"failures": MAX_COUNTER, "until": "9999-12-31T23:59:59Z"}}},
        {"backOff": {"0": {"failures": 3, "until": "2026-02-30T00:00:00Z"}}},
    ],
    ids=str,
)
async def test_a_valid_status_of_another_program_makes_no_pod_too_many(fields: Json) -> None:
    cluster = WatchedCluster()
    await cluster.start()
    cluster.tamper_role(**fields)
    await is_back_at_its_size(cluster)


@pytest.mark.guarantee("foreign-status-writes")
@pytest.mark.parametrize(
    "fields",
    [
        {"phase": "Suspended"},
        {"currentPlan": "another-plan"},
        {"currentPlan": "job-back-1"},
        {
            "master": {
                "incarnations": 1,
                "backOff": {"failures": 9, "until": "9999-12-31T23:59:59Z"},
            }
        },
        {"message": "x" * MAX_MESSAGE_CHARACTERS},
        {"workers": "9/9", "restarts": 0, "selector": "a=b"},
    ],
    ids=lambda fields: str(fields)[:60],
)
async def test_other_fields_that_another_program_writes_are_computed_again(fields: Json) -> None:
    cluster = WatchedCluster()
    await cluster.start()
    cluster.tamper(ELASTIC_JOBS, JOB, **fields)
    await is_back_at_its_size(cluster)


async def is_back_at_its_size(cluster: WatchedCluster) -> None:
    await cluster.settle()
    cluster.check_final_state()
    assert len([pod for pod in cluster.kube.pods() if pod["status"]["phase"] == "Running"]) == 2
    assert cluster.job().status.phase == "Running"


@pytest.mark.guarantee("foreign-status-writes")
async def test_when_a_status_is_deleted_the_pods_stay_members_and_no_name_is_used_twice() -> None:
    cluster = WatchedCluster()
    await cluster.start()
    plan = {"removePods": [{"role": "worker", "index": 0}], "createPods": [{"index": 4}]}
    await cluster.apply(SCALE_PLANS, "gap", **plan)
    await cluster.settle()
    pods = {pod["metadata"]["uid"] for pod in cluster.kube.pods()}
    cluster.tamper_role(indices="5-3")
    await run(cluster)
    cluster.kube.objects[ELASTIC_JOBS, JOB]["status"] = {}
    cluster.kube.set_status(ELASTIC_JOBS, JOB)
    await is_back_at_its_size(cluster)
    assert {pod["metadata"]["uid"] for pod in cluster.kube.pods()} == pods
    assert cluster.job().status.replica_statuses["worker"].indices == "1,4"


MOVE = {"role": "worker", "index": 0, "phase": "Starting"}
INVALID_PLANS: list[tuple[Json, str]] = [
    ({"targets": {"worker": "0-99999"}}, "status.targets.worker: '0-99999' is not a set"),
    ({"targets": {"evaluator": "0-3"}}, "status.targets: 'evaluator' is not a role"),
    ({"specReplicas": {"evaluator": 2}}, "status.specReplicas"),
    (
        {"resourcesByIndex": {"worker": {"2": {"cpu": "1e900"}}}},
        "status.resourcesByIndex.worker.2.cpu",
    ),
    (
        {"migrations": [{**MOVE, "role": "boss", "replacement": 9}]},
        "status.migrations: 'boss' is not a role",
    ),
    (
        {"migrations": [{**MOVE, "replacement": n + 9} for n in range(500)]},
        "status.migrations: 500 are in progress",
    ),
    ({"executionTime": "2026-02-30T00:00:00Z"}, "status.executionTime"),
]


async def growing() -> WatchedCluster:
    """Return a cluster whose job executes a plan from 2 to 4 workers."""
    cluster = WatchedCluster()
    await cluster.start()
    sizes = {"worker": {"replicas": 4}}
    await cluster.apply(SCALE_PLANS, "grow", replicaResourceSpecs=sizes, timeoutSeconds=30)
    await until(
        cluster,
        lambda: (
            cluster.kube.objects[SCALE_PLANS, "grow"].get("status", {}).get("phase") == "Executing"
        ),
    )
    return cluster


@pytest.mark.guarantee("foreign-status-writes")
@pytest.mark.parametrize(("fields", "reason"), INVALID_PLANS, ids=lambda value: str(value)[:60])
async def test_a_job_is_left_alone_until_the_status_of_its_running_plan_is_valid_again(
    fields: Json, reason: str
) -> None:
    cluster = await growing()
    valid = copied(cluster.kube.objects[SCALE_PLANS, "grow"]["status"])
    cluster.tamper(SCALE_PLANS, "grow", **fields)
    await is_left_alone(cluster, f"ScalePlan grow: {reason}")
    cluster.kube.objects[SCALE_PLANS, "grow"]["status"] = valid
    cluster.tamper(SCALE_PLANS, "grow")
    await works_again(cluster)
    assert len(cluster.kube.pods()) == 4


@pytest.mark.guarantee("foreign-status-writes")
@pytest.mark.parametrize(
    "fields",
    [
        {"targets": {"worker": "0-9999"}},
        {"targets": {}, "before": {}},
        {"before": {"worker": "0-9999"}},
        {"startTime": None, "executionTime": None},
        {
            "phase": "Draining",
            "executionTime": None,
            "drainingPods": [f"p-{n}" for n in range(5000)],
        },
    ],
    ids=lambda fields: str(fields)[:60],
)
async def test_a_plan_with_a_valid_status_of_another_program_ends_and_makes_no_pod_too_many(
    fields: Json,
) -> None:
    cluster = await growing()
    cluster.tamper(SCALE_PLANS, "grow", **fields)
    for _ in range(60):
        await cluster.run_operator()
        cluster.run_pods()
    await cluster.settle()
    cluster.check_final_state()
    assert len(cluster.kube.pods()) == cluster.job().spec.replica_specs["worker"].size <= MOST


@pytest.mark.guarantee("foreign-status-writes")
@pytest.mark.parametrize("resource", [SCALE_OUTS, SCALE_INS], ids=lambda resource: resource.kind)
async def test_a_request_that_names_a_plan_that_does_not_exist_ends(resource: Resource) -> None:
    cluster = WatchedCluster()
    await cluster.start()
    await cluster.apply(resource, "request", count=1)
    cluster.tamper(resource, "request", plan="no-plan")
    await cluster.settle()
    cluster.check_final_state()


@pytest.mark.parametrize(
    "fields", [{"restartsByIndex": {"abc": 1}}, {"desired": -1}, {"indices": "x"}], ids=str
)
async def test_a_job_whose_status_cannot_be_read_is_left_alone_until_it_can(fields: Json) -> None:
    cluster = WatchedCluster()
    await cluster.start()
    valid = copied(cluster.kube.objects[ELASTIC_JOBS, JOB]["status"])
    before = cluster.kube.version
    cluster.tamper_role(**fields)
    await run(cluster)
    assert cluster.kube.version == before + 1
    cluster.tamper(ELASTIC_JOBS, JOB, replicaStatuses=valid["replicaStatuses"])
    await is_back_at_its_size(cluster)


async def test_messages_are_cut_to_the_length_that_the_api_server_accepts() -> None:
    cluster = WatchedCluster()
    await cluster.start()
    job = cluster.job()
    long = "x" * 40_000
    conditions = [Condition(type="Ready", status="True", message=long)]
    [patch] = patches.job_status(job, replace(job.status, message=long, conditions=conditions))
    assert len(patch.patch["message"]) == MAX_MESSAGE_CHARACTERS
    assert len(patch.patch["conditions"][0]["message"]) == MAX_MESSAGE_CHARACTERS


async def until(cluster: Cluster, holds: Callable[[], bool]) -> None:
    for _ in range(50):
        if holds():
            return
        await cluster.run_operator()
        if holds():
            return
        cluster.run_pods()
    raise AssertionError("the condition never holds")
