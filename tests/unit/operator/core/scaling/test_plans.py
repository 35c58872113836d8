"""Tests ScalePlans, ScaleIns and ScaleOuts from the queue to their end.

Refusals, rollbacks, messages and deletion are included.
"""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, RunPolicy
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import (
    ELASTIC_JOBS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    SERVICE_ACCOUNTS,
    Resource,
)
from elasticjob_operator.core.model.observed import owner_reference
from elasticjob_operator.core.model.plan import PlanRefused
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.scaling.limits import check_bounds
from elasticjob_operator.core.scaling.resize import resize_request
from elasticjob_operator.job_keys import JobKey

from tests.support.simulator.cluster import JOB, NAMESPACE, Cluster, Operator
from tests.support.simulator.nodes import Nodes, index_of, limit_pods
from tests.support.thorough import crash_matrix

CPU = "spec.autoscaling.resourceLimits.cpu: all members together would request cpu"


def plan_of(**roles: Any) -> dict[str, Any]:
    return {"replicaResourceSpecs": roles}


REFUSED: list[tuple[Resource, dict[str, Any], str]] = [
    (SCALE_OUTS, {"count": 2000}, "spec.count: 2000 must be from 1 to 1000"),
    (
        SCALE_INS,
        {"podNames": ["job-worker-0", "job-worker-0"]},
        "spec.podNames[1]: 'job-worker-0' is named twice",
    ),
    (
        SCALE_INS,
        {"podNames": ["job-worker-0"], "count": 1},
        "spec.count, spec.podNames: give either count or podNames",
    ),
    (SCALE_INS, {}, "spec.count, spec.podNames: give either count or podNames"),
    (
        SCALE_PLANS,
        {"removePods": [{"role": "ps", "index": 0}]},
        "spec.removePods[0].role: 'ps' is not a role",
    ),
    (
        SCALE_PLANS,
        {"createPods": [{"resource": {"memory": "much"}}]},
        "spec.createPods[0].resource.memory: 'much' is not a quantity",
    ),
    (
        SCALE_PLANS,
        {"createPods": [{"resource": {"cpu": "3"}}]},
        f"{CPU} 5, above the job's limit 4",
    ),
    (
        SCALE_PLANS,
        {"migratePods": [{"role": "worker", "index": 9}]},
        "spec.migratePods[0].index: 9 is not a member",
    ),
    (
        SCALE_PLANS,
        {"migratePods": [{"name": "job-worker-0"}], "removePods": [{"name": "job-worker-0"}]},
        "spec.migratePods[0]: member 0 of role worker is removed by the same plan",
    ),
    (
        SCALE_PLANS,
        {"migratePods": [{"name": "job-worker-0", "resource": {"nvidia.com/gpu": "0.5"}}]},
        "spec.migratePods[0].resource.nvidia.com/gpu: 0.5 must be a whole number",
    ),
    (
        SCALE_PLANS,
        {
            "createPods": [{"resource": {f"example.com/a{n}": 1 for n in range(5)}}],
            **plan_of(worker={"resource": {f"example.com/b{n}": 1 for n in range(4)}}),
        },
        "spec: plans would have set 9 resources of role worker (example.com/a0, ",
    ),
    (
        SCALE_PLANS,
        {"createPods": [{"resource": {f"{'x' * 50}/{'y' * 9}{n}": 1 for n in range(8)}}] * 1000},
        "spec: the resources of single members would take 496000 characters to store, above "
        "400000; give those of all "
        "members in spec.replicaResourceSpecs",
    ),
    (
        SCALE_PLANS,
        {"migratePods": [{"name": "job-worker-0", "resource": {"cpu": "3500m"}}]},
        f"{CPU} 4.5, above the job's limit 4",
    ),
    (
        SCALE_PLANS,
        {
            "migratePods": [{"name": "job-worker-0", "resource": {"cpu": "2"}}],
            **plan_of(worker={"resource": {"cpu": 1}}),
        },
        "spec.migratePods[0].resource.cpu: 2, but spec.replicaResourceSpecs.worker.resource.cpu is "
        "1 for every member",
    ),
    (
        SCALE_PLANS,
        {**plan_of(worker={"replicas": 5}), "source": "Auto"},
        f"{CPU} 5, above the job's limit 4",
    ),
]


async def started(**options: Any) -> Nodes:
    return await Nodes(Cluster(**options)).started()


def size(nodes: Nodes) -> tuple[int, int]:
    """Return the desired size in the job's status, and the replicas of its spec."""
    job = nodes.cluster.job()
    return job.status.replica_statuses["worker"].desired, job.spec.replica_specs["worker"].size


def status_of(nodes: Nodes, resource: Resource, name: str) -> dict[str, Any]:
    status: dict[str, Any] = nodes.cluster.kube.objects[resource, name].get("status", {})
    return status


# --- bad input


@pytest.mark.guarantee("refusals-name-the-bound")
@pytest.mark.parametrize(
    ("resource", "spec", "message"), REFUSED, ids=[message[:70] for _, _, message in REFUSED]
)
async def test_a_request_that_cannot_be_met_says_why_and_touches_nothing(
    resource: Resource, spec: dict[str, Any], message: str
) -> None:
    nodes = await started(replicas=2, autoscaling={"resourceLimits": {"cpu": "4"}})
    before = [(pod["metadata"]["uid"], pod["spec"]) for pod in nodes.cluster.kube.all(PODS)]
    await nodes.cluster.apply(resource, "bad", **spec)
    await nodes.settle()
    assert status_of(nodes, resource, "bad")["phase"] in ("ScaleFailed", "Failed")
    assert message in status_of(nodes, resource, "bad")["message"]
    assert [(pod["metadata"]["uid"], pod["spec"]) for pod in nodes.cluster.kube.all(PODS)] == before
    nodes.cluster.check_final_state()


def test_a_role_of_which_the_framework_has_one_gets_no_second_member() -> None:
    spec = {
        "framework": "mxnet",
        "replicaSpecs": {role: {"template": {}} for role in ("scheduler", "server", "worker")},
    }
    job = msgspec.convert({"metadata": {"name": JOB}, "spec": spec}, ElasticJob)
    check_bounds(job, "server", 2, prefix="")
    with pytest.raises(PlanRefused, match=r"spec\.count: framework mxnet has one scheduler, not 2"):
        check_bounds(job, "scheduler", 2, prefix="spec.count: ")


@pytest.mark.guarantee("finished-objects-are-pruned")
@pytest.mark.parametrize("how", ["finished", "suspended"])
async def test_a_job_that_does_not_run_is_not_scaled(how: str) -> None:
    nodes = await started(replicas=1)
    if how == "finished":
        nodes.cluster.end("job-worker-0", 0)
    else:
        nodes.cluster.edit_policy(suspend=True)
    await nodes.settle()
    await nodes.cluster.apply(SCALE_OUTS, "out", count=1)
    await nodes.cluster.apply(SCALE_INS, "in", count=1)
    await nodes.cluster.apply(SCALE_PLANS, "plan", migratePods=[{"name": "job-worker-0"}])
    await nodes.settle()
    message = "spec.jobName: ElasticJob 'job' " + (
        "has ended (Succeeded)" if how == "finished" else "is suspended"
    )
    for resource, name in ((SCALE_OUTS, "out"), (SCALE_INS, "in"), (SCALE_PLANS, "plan")):
        assert status_of(nodes, resource, name)["phase"] in ("ScaleFailed", "Failed")
        assert status_of(nodes, resource, name)["message"] == message
        owners = nodes.cluster.kube.objects[resource, name]["metadata"].get("ownerReferences", [])
        assert [owner["kind"] for owner in owners] == ["ElasticJob"], "it does not outlive the job"


async def without_job(
    cluster: Cluster, now: float, monkeypatch: pytest.MonkeyPatch
) -> float | None:
    """Let a new operator do all there is to do at a time.

    Return the seconds until it has to do something again.
    """
    monkeypatch.setattr(time, "time", lambda: now)
    cluster.operator = Operator(cluster.kube)
    await cluster.operator.watch()
    for _ in range(10):
        due = await cluster.operator.reconciler.reconcile(JobKey(NAMESPACE, JOB))
        if due != 0.0:
            return due
    raise AssertionError("it does not come to rest")


@pytest.mark.guarantee("finished-objects-are-pruned")
async def test_what_names_a_job_that_does_not_exist_is_refused_and_deleted_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    await cluster.apply(SCALE_OUTS, "out", count=1, ttlSecondsAfterFinished=60)
    await cluster.apply(SCALE_INS, "in", count=1, ttlSecondsAfterFinished=100)
    await cluster.apply(SCALE_PLANS, "plan", createPods=[{}])
    assert await without_job(cluster, 1e9, monkeypatch) == 60
    kinds = {SCALE_OUTS: "out", SCALE_INS: "in", SCALE_PLANS: "plan"}
    for resource, name in kinds.items():
        status = cluster.kube.objects[resource, name]["status"]
        assert status["phase"] == ("Failed" if name == "plan" else "ScaleFailed")
        assert status["message"] == "spec.jobName: there is no ElasticJob 'job' in namespace 'ns'"
    writes = cluster.kube.writes
    assert await without_job(cluster, 1e9 + 59, monkeypatch) == 1
    assert cluster.kube.writes == writes
    assert await without_job(cluster, 1e9 + 61, monkeypatch) == 39
    assert await without_job(cluster, 1e9 + 101, monkeypatch) is None
    assert list(cluster.kube.objects) == [(SCALE_PLANS, "plan")]


@pytest.mark.guarantee("finished-objects-are-pruned")
async def test_plans_of_a_missing_job_are_kept_up_to_a_limit_but_not_those_of_a_deleted_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    most = RunPolicy().plan_history_limit
    for number in range(most + 2):
        await cluster.apply(SCALE_PLANS, f"plan-{number}", createPods=[{}])
        await without_job(cluster, 1e9 + number, monkeypatch)
    left = {"name": "left", "labels": {names.LABEL_JOB_UID: "earlier"}}
    await cluster.create(
        SCALE_PLANS, {"metadata": left, "spec": {"jobName": JOB, "createPods": [{}]}}
    )
    assert await without_job(cluster, 1e9 + most, monkeypatch) is None
    present = {name for _, name in cluster.kube.objects}
    assert present == {"left", *(f"plan-{number}" for number in range(2, most + 2))}


async def test_nothing_that_names_a_job_ends_before_the_api_server_has_said_that_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster()
    await cluster.start()
    await cluster.apply(SCALE_OUTS, "out", count=1, ttlSecondsAfterFinished=0)
    await cluster.operator.watch()
    job = cluster.operator.store.job(JobKey(NAMESPACE, JOB))
    assert job is not None
    cluster.operator.store.set_aside(job.metadata.uid)
    assert (
        await cluster.operator.reconciler._end_requests_without_job(JobKey(NAMESPACE, JOB)) == 0.0
    )
    assert "status" not in cluster.kube.objects[SCALE_OUTS, "out"]
    assert cluster.operator.store.job(JobKey(NAMESPACE, JOB)) is not None


async def test_a_plan_that_succeeded_reports_its_changes_and_its_duration() -> None:
    nodes = await started(replicas=2)
    await nodes.cluster.apply(SCALE_OUTS, "more", count=2)
    await nodes.settle()
    message = status_of(nodes, SCALE_OUTS, "more")["message"]
    assert re.fullmatch(r"worker 2 to 4 in \d+ s", message), message
    assert nodes.plans()[0]["status"]["message"] == message
    resources = {"cpu": "2"}
    await nodes.cluster.apply(
        SCALE_PLANS, "cpu", replicaResourceSpecs={"worker": {"resource": resources}}
    )
    await nodes.settle()
    assert nodes.plan("cpu")["message"].startswith("worker resources in ")


@pytest.mark.parametrize(
    ("resource", "spec"),
    [(SCALE_INS, {"count": 2}), (SCALE_PLANS, plan_of(worker={"replicas": 1}))],
)
async def test_members_that_are_not_ready_leave_before_those_that_train(
    resource: Resource, spec: dict[str, Any]
) -> None:
    nodes = await started(replicas=3)
    not_ready = [{"type": "Ready", "status": "False"}]
    nodes.cluster.kube.set_status(PODS, "job-worker-0", conditions=not_ready)
    await nodes.cluster.apply(resource, "less", **spec)
    await nodes.settle()
    assert nodes.live_pods() == ["job-worker-1"]


# --- draining, time-outs, messages


async def test_the_status_lists_draining_removed_and_forced_pods() -> None:
    nodes = await started(replicas=4)
    cluster = nodes.cluster
    nodes.agents = False
    await cluster.apply(SCALE_INS, "less", count=3)
    await nodes.until(
        lambda: bool(nodes.plans()) and nodes.plans()[0]["status"].get("phase") == "Draining"
    )
    name = nodes.plans()[0]["metadata"]["name"]
    assert nodes.plan(name)["drainingPods"] == ["job-worker-1", "job-worker-2", "job-worker-3"]
    assert "removedPods" not in nodes.plan(name)
    cluster.end("job-worker-2", 143)
    await nodes.run_operator()
    assert nodes.plan(name)["drainingPods"] == ["job-worker-1", "job-worker-3"]
    assert nodes.plan(name)["removedPods"] == ["job-worker-2"]
    assert len(cluster.kube.pods()) == 4, "nobody is deleted before all have drained"
    await nodes.settle()
    assert "drainingPods" not in nodes.plan(name)
    assert nodes.plan(name)["removedPods"] == ["job-worker-1", "job-worker-2", "job-worker-3"]
    assert nodes.plan(name)["forcedPods"] == ["job-worker-1", "job-worker-3"]
    assert status_of(nodes, SCALE_INS, "less")["pods"] == nodes.plan(name)["removedPods"]


async def test_a_removed_pod_that_does_not_end_is_reported_and_its_index_not_used() -> None:
    nodes = await started(replicas=3)
    nodes.lost = frozenset({"job-worker-2"})
    await nodes.cluster.apply(
        SCALE_PLANS, "less", timeoutSeconds=20, drainSeconds=4, **plan_of(worker={"replicas": 2})
    )
    await nodes.settle()
    assert nodes.plan("less")["phase"] == "PartiallySucceeded"
    message = "after timeoutSeconds 20: 1 of 1 removed pods have not gone: job-worker-2"
    assert nodes.plan("less")["message"] == message
    await nodes.cluster.apply(SCALE_OUTS, "more", count=1)
    await nodes.settle()
    assert "job-worker-3" in nodes.live_pods()
    assert size(nodes) == (3, 3)
    assert status_of(nodes, SCALE_OUTS, "more")["phase"] == "ScaleSucceeded"
    await nodes.cluster.apply(SCALE_INS, "other", podNames=["job-worker-3"])
    await nodes.settle()
    assert status_of(nodes, SCALE_INS, "other")["phase"] == "ScaleSucceeded"


REASONS = [
    ("Unschedulable", "Unschedulable: 0/3 nodes are available"),
    ("quota", "exceeded quota: pods=3"),
    ("image", "ImagePullBackOff: no such image"),
]


@pytest.mark.guarantee("pods-that-cannot-start")
@pytest.mark.parametrize(("cause", "reason"), REASONS)
async def test_a_plan_that_reaches_only_a_part_says_how_many_and_why(
    cause: str, reason: str
) -> None:
    nodes = await started(replicas=2, most=20)
    if cause == "quota":
        limit_pods(nodes.cluster, 3)
    else:
        nodes.stuck = lambda pod: "0/3 nodes are available" if index_of(pod) > 2 else ""
    await nodes.cluster.apply(
        SCALE_PLANS, "p", timeoutSeconds=30, **plan_of(worker={"replicas": 16})
    )
    if cause == "image":
        await nodes.until(lambda: len(nodes.live_pods()) == 16)
        waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
        for pod in nodes.cluster.kube.pods():
            if index_of(pod) > 2:
                status = {"containerStatuses": [{"name": "train", "state": {"waiting": waiting}}]}
                nodes.cluster.kube.set_status(PODS, pod["metadata"]["name"], **status)
    await nodes.until(lambda: "completionTime" in nodes.plan("p"))
    plan = nodes.plan("p")
    assert plan["phase"] == "PartiallySucceeded"
    named = ", ".join(f"worker {index}" for index in range(3, 13))
    assert (
        plan["message"]
        == f"after timeoutSeconds 30: 13 of 14 new members are not ready: {named}, … ({reason})"
    )
    assert size(nodes) == (16, 16), "Keep: they stay wanted"


@pytest.mark.parametrize("how", ["ScaleIn", "ScalePlan", "edit"])
async def test_a_job_that_a_quota_keeps_from_its_size_can_be_made_smaller(how: str) -> None:
    nodes = Nodes(Cluster(replicas=4))
    limit_pods(nodes.cluster, 2)
    await nodes.cluster.create(ELASTIC_JOBS, nodes.cluster._body)
    await nodes.until(lambda: "exceeded quota" in nodes.cluster.job().status.message)
    if how == "ScaleIn":
        await nodes.cluster.apply(SCALE_INS, "fewer", count=2)
    elif how == "ScalePlan":
        await nodes.cluster.apply(SCALE_PLANS, "fewer", **plan_of(worker={"replicas": 2}))
    else:
        nodes.cluster.edit_role(replicas=2)
    await nodes.until(lambda: size(nodes) == (2, 2))
    await nodes.settle()
    assert nodes.live_pods() == ["job-worker-0", "job-worker-1"]
    assert nodes.cluster.job().status.message == ""
    nodes.cluster.check_final_state()


async def test_a_plan_ends_in_its_time_though_what_a_new_master_needs_is_refused() -> None:
    nodes = await started(replicas=2)
    kube = nodes.cluster.kube
    nodes.stuck = lambda pod: "no node" if index_of(pod) == 2 else ""

    def without_account(resource: Resource, body: Json) -> None:
        if resource == SERVICE_ACCOUNTS:
            raise Refused(403, "Forbidden", "no right to create it")

    await nodes.cluster.apply(SCALE_PLANS, "more", createPods=[{}], timeoutSeconds=5)
    await nodes.until(lambda: status_of(nodes, SCALE_PLANS, "more").get("phase") == "Executing")
    kube.before_create = without_account
    for name in ("job-worker-2", "job-master"):
        kube.remove(PODS, name)
    kube.remove(SERVICE_ACCOUNTS, "job-master")
    await nodes.until(lambda: status_of(nodes, SCALE_PLANS, "more")["phase"] == "Failed")
    assert "1 of 1 new members are not ready" in status_of(nodes, SCALE_PLANS, "more")["message"]
    assert "no right to create it" in nodes.cluster.job().status.message


@pytest.mark.parametrize(
    ("resource", "bounds"), [(SCALE_INS, {"minReplicas": 4}), (SCALE_OUTS, {"maxReplicas": 4})]
)
async def test_bounds_edited_while_a_plan_runs_win_over_its_size(
    resource: Resource, bounds: dict[str, int]
) -> None:
    nodes = await started(replicas=4)
    nodes.agents = False
    nodes.stuck = lambda _: "no node"
    await nodes.cluster.apply(resource, "change", count=2)
    await nodes.until(lambda: status_of(nodes, resource, "change").get("phase") == "Scaling")
    nodes.cluster.edit_role("worker", **bounds)
    nodes.agents = True
    nodes.stuck = lambda _: ""
    await nodes.settle()
    await nodes.settle()
    assert status_of(nodes, resource, "change")["phase"] == "ScaleSucceeded"
    assert size(nodes) == (4, 4), "the API server refuses any other count for these bounds"
    nodes.cluster.check_final_state()


async def test_of_a_plan_that_is_rolled_back_stays_what_has_become_ready() -> None:
    nodes = await started(replicas=2)
    nodes.stuck = lambda pod: "no room" if index_of(pod) in (3, 4) else ""
    spec = plan_of(worker={"replicas": 5})
    await nodes.cluster.apply(SCALE_PLANS, "p", timeoutSeconds=30, onTimeout="Rollback", **spec)
    await nodes.settle()
    assert nodes.plan("p")["phase"] == "PartiallySucceeded"
    assert nodes.plan("p")["message"].startswith(
        "rolled back after timeoutSeconds 30: 2 of 3 new members are not ready: worker 3, worker 4"
    )
    assert nodes.plan("p")["createdPods"] == ["job-worker-2"]
    assert nodes.live_pods() == ["job-worker-0", "job-worker-1", "job-worker-2"]
    assert size(nodes) == (3, 3)
    nodes.cluster.check_final_state()


@pytest.mark.parametrize("on_timeout", ["Keep", "Rollback"])
async def test_members_that_were_to_be_exchanged_come_back_when_the_new_ones_do_not(
    on_timeout: str,
) -> None:
    nodes = await started(replicas=2, least=2)
    nodes.stuck = lambda pod: "no room" if index_of(pod) == 2 else ""
    change = {"removePods": [{"name": "job-worker-0"}], "createPods": [{}]}
    await nodes.cluster.apply(SCALE_PLANS, "p", timeoutSeconds=30, onTimeout=on_timeout, **change)
    await nodes.settle()
    assert nodes.plan("p")["phase"] == (
        "Failed" if on_timeout == "Rollback" else "PartiallySucceeded"
    )
    back = ["job-worker-0-1", "job-worker-1"]
    await nodes.until(
        lambda: (
            nodes.live_pods()
            == (back if on_timeout == "Rollback" else ["job-worker-1", "job-worker-2"])
        )
    )
    assert size(nodes) == (2, 2), "never below minReplicas"


@pytest.mark.parametrize("on_timeout", ["Keep", "Rollback"])
async def test_a_mixture_that_is_out_of_time_begins_nothing_more(on_timeout: str) -> None:
    nodes = await started(replicas=2)
    nodes.stuck = lambda pod: "no room" if index_of(pod) == 2 else ""
    mixture = {
        **plan_of(worker={"replicas": 3, "resource": {"cpu": "2"}}),
        "migratePods": [{"name": "job-worker-0"}],
        "timeoutSeconds": 30,
        "onTimeout": on_timeout,
    }
    await nodes.cluster.apply(SCALE_PLANS, "p", **mixture)
    await nodes.settle()
    plan = nodes.plan("p")
    assert plan["phase"] == "PartiallySucceeded", "one was resized in place"
    assert "1 of 1 new members are not ready: worker 2 (Unschedulable: no room)" in plan["message"]
    assert "1 of 1 members are not replaced: worker 0 (it was not begun)" in plan["message"]
    assert plan["resizedPods"] == ["job-worker-1"]
    assert nodes.requests("cpu")["job-worker-0"] == "1"
    kept = 3 if on_timeout == "Keep" else 2
    await nodes.until(lambda: len(nodes.live_pods()) == kept)
    assert size(nodes) == (kept, kept)


# --- resources


@pytest.mark.guarantee("unset-resources")
@pytest.mark.parametrize(
    ("template", "asked", "wanted", "limit"),
    [
        (
            {},
            ("1Gi", "8Gi"),
            "2Gi",
            "8Gi",
        ),  # a default of the namespace: the user did not want a lower limit
        ({}, ("1Gi", "8Gi"), "9Gi", "9Gi"),
        ({}, ("8Gi", "8Gi"), "2Gi", "2Gi"),  # else its quality-of-service class would change
        ({"limits": {"memory": "8Gi"}}, ("1Gi", "8Gi"), "2Gi", "2Gi"),
        ({}, ("1Gi", None), "2Gi", None),
    ],
)
def test_a_limit_that_only_the_namespace_gives_is_not_lowered_to_a_request_below_it(
    template: dict[str, Any], asked: tuple[str, str | None], wanted: str, limit: str | None
) -> None:
    container = {"name": "train", "resources": template}
    worker = {"template": {"spec": {"containers": [container]}}}
    spec = {"framework": "custom", "replicaSpecs": {"worker": worker}}
    job = msgspec.convert({"metadata": {"name": "job"}, "spec": spec}, ElasticJob)
    limits = {"limits": {"memory": asked[1]}} if asked[1] is not None else {}
    has = {"name": "train", "resources": {"requests": {"memory": asked[0]}, **limits}}
    labels = {names.LABEL_ROLE: "worker", names.LABEL_INDEX: "0", names.LABEL_INCARNATION: "0"}
    pod = msgspec.convert(
        {"metadata": {"name": "p", "labels": labels}, "spec": {"containers": [has]}}, Pod
    )
    request = resize_request(job, pod, {"memory": wanted})
    assert request.resources["requests"] == {"memory": wanted}
    assert (request.resources.get("limits") or {}).get("memory") == limit


async def test_a_resize_keeps_what_earlier_plans_have_set() -> None:
    nodes = await started(replicas=2)
    await nodes.cluster.apply(SCALE_PLANS, "a", **plan_of(worker={"resource": {"memory": "3Gi"}}))
    await nodes.settle()
    await nodes.cluster.apply(
        SCALE_PLANS, "b", **plan_of(worker={"replicas": 3, "resource": {"cpu": "2"}})
    )
    await nodes.settle()
    assert nodes.plan("b")["resizedPods"] == ["job-worker-0", "job-worker-1"]
    assert set(nodes.requests("memory").values()) == {"3Gi"}
    assert set(nodes.requests("cpu").values()) == {"2"}


async def test_a_plan_for_all_members_replaces_the_resources_of_a_single_one() -> None:
    nodes = await started(replicas=1)
    await nodes.cluster.apply(SCALE_PLANS, "a", createPods=[{"resource": {"memory": "2Gi"}}])
    await nodes.settle()
    await nodes.cluster.apply(SCALE_PLANS, "b", **plan_of(worker={"resource": {"memory": "5Gi"}}))
    await nodes.settle()
    nodes.cluster.kube.remove(PODS, "job-worker-1")
    await nodes.settle()
    assert set(nodes.requests("memory").values()) == {"5Gi"}


async def test_a_plan_that_asks_for_the_present_state_changes_nothing() -> None:
    nodes = await started(replicas=2)
    nodes.resizes = "Silent"
    before = nodes.live_pods()
    for name in before:
        nodes.cluster.kube.set_status(
            PODS, name, containerStatuses=[{"name": "train"}]
        )  # a kubelet that reports nothing
    nodes.run_pods = lambda: None  # type: ignore[method-assign]
    await nodes.cluster.apply(
        SCALE_PLANS, "p", **plan_of(worker={"replicas": 2, "resource": {"cpu": "1000m"}})
    )
    await nodes.settle()
    assert nodes.plan("p")["phase"] == "Succeeded"
    assert nodes.live_pods() == before


async def test_a_resize_is_done_when_the_limits_are_in_force_too() -> None:
    container = {"name": "train", "image": "i", "command": ["c"]}
    container |= {"resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "1Gi"}}}  # type: ignore[dict-item]
    nodes = await started(replicas=1, worker={"template": {"spec": {"containers": [container]}}})
    await nodes.cluster.apply(SCALE_PLANS, "p", **plan_of(worker={"resource": {"memory": "2Gi"}}))
    await nodes.run_operator()
    half = {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}
    nodes.cluster.kube.set_status(
        PODS, "job-worker-0", containerStatuses=[{"name": "train", "resources": half}]
    )
    await nodes.run_operator()
    assert nodes.plan("p")["phase"] == "Executing"
    await nodes.settle()
    assert nodes.plan("p")["phase"] == "Succeeded"
    assert nodes.plan("p")["resizedPods"] == ["job-worker-0"]


# --- the queue


async def test_what_waits_is_simply_gone_when_it_is_deleted() -> None:
    nodes = await started(replicas=2)
    await nodes.cluster.apply(SCALE_PLANS, "first", **plan_of(worker={"replicas": 3}))
    await nodes.cluster.apply(SCALE_PLANS, "second", **plan_of(worker={"replicas": 5}))
    await nodes.cluster.apply(SCALE_OUTS, "third", count=1)
    await nodes.run_operator()
    assert (
        nodes.plan("second")["phase"] == status_of(nodes, SCALE_OUTS, "third")["phase"] == "Pending"
    )
    assert nodes.plan("second")["message"] == "waits for ScalePlan first"
    nodes.cluster.kube.remove(SCALE_PLANS, "second")
    nodes.cluster.kube.remove(SCALE_OUTS, "third")
    await nodes.settle()
    assert size(nodes) == (3, 3)


DELETED: list[tuple[str, dict[str, Any]]] = [
    ("scale-out", plan_of(worker={"replicas": 5})),
    ("scale-in", plan_of(worker={"replicas": 1})),
    ("exchange", {"removePods": [{"name": "job-worker-0"}], "createPods": [{}, {}]}),
    ("migration", {"migratePods": [{"name": "job-worker-1"}]}),
    ("resources", plan_of(worker={"resource": {"nvidia.com/gpu": 1}})),
]


@pytest.mark.guarantee("plan-deleted-midway")
@pytest.mark.parametrize(
    ("spec", "turns"), crash_matrix([(kind, (spec,)) for kind, spec in DELETED], range(7))
)
async def test_a_plan_deleted_while_it_is_executed_leaves_the_job_with_the_size_of_its_spec(
    spec: dict[str, Any], turns: int
) -> None:
    nodes = await started(replicas=3)
    await nodes.cluster.apply(SCALE_PLANS, "p", **spec)
    for _ in range(turns):
        await nodes.run_operator()
        nodes.run_pods()
    asked = size(nodes)[1]
    nodes.cluster.kube.remove(SCALE_PLANS, "p")
    await nodes.settle()
    assert size(nodes) == (asked, asked)
    assert len(nodes.live_pods()) == asked
    assert nodes.cluster.job().status.current_plan is None
    assert nodes.cluster.job().status.phase == "Running"
    nodes.cluster.check_final_state()


async def test_what_a_deleted_plan_has_changed_in_place_is_remembered() -> None:
    nodes = await started(replicas=2)
    await nodes.cluster.apply(SCALE_PLANS, "p", **plan_of(worker={"resource": {"cpu": "2"}}))
    await nodes.run_operator()
    nodes.run_pods()
    nodes.cluster.kube.remove(SCALE_PLANS, "p")
    await nodes.settle()
    nodes.cluster.kube.remove(PODS, "job-worker-1")
    await nodes.settle()
    assert nodes.requests("cpu") == {"job-worker-0": "2", "job-worker-1-1": "2"}
    assert nodes.plans() == [], "there is no size to go back to"


async def test_the_way_back_from_a_deleted_plan_is_a_plan_that_goes_before_all_others() -> None:
    nodes = await started(replicas=3)
    nodes.stuck = lambda pod: "no room" if index_of(pod) > 3 else ""
    await nodes.cluster.apply(SCALE_PLANS, "p", **plan_of(worker={"replicas": 6}))
    await nodes.until(lambda: len(nodes.live_pods()) == 6)
    await nodes.cluster.apply(SCALE_OUTS, "more", count=1)
    await nodes.run_operator()
    nodes.cluster.kube.remove(SCALE_PLANS, "p")
    await nodes.settle()
    back, more = nodes.plans()
    assert back["metadata"]["name"].startswith("job-back-")
    assert (back["spec"]["source"], back["status"]["phase"]) == ("Spec", "Succeeded")
    assert "p was deleted while it was being executed" in back["spec"]["reason"]
    assert back["status"]["removedPods"] == ["job-worker-3", "job-worker-4", "job-worker-5"]
    assert more["status"]["phase"] == "Succeeded"
    assert size(nodes) == (4, 4)


async def test_deleting_a_running_scale_out_cancels_it_also_without_a_garbage_collector() -> None:
    nodes = await started(replicas=2)
    nodes.stuck = lambda pod: "no room" if index_of(pod) > 1 else ""
    await nodes.cluster.apply(SCALE_OUTS, "more", count=2)
    await nodes.until(lambda: len(nodes.live_pods()) == 4)
    nodes.cluster.kube.remove(SCALE_OUTS, "more")  # and no garbage collector
    await nodes.settle()
    assert nodes.live_pods() == ["job-worker-0", "job-worker-1"]
    assert size(nodes) == (2, 2)
    assert [plan["spec"]["source"] for plan in nodes.plans()] == ["Spec"]


async def test_a_deletion_continues_after_a_crash_of_the_operator_at_any_write() -> None:
    for write in range(1, 20):
        nodes = await started(replicas=2)
        await nodes.cluster.apply(SCALE_PLANS, "p", **plan_of(worker={"replicas": 5}))
        await nodes.until(lambda: len(nodes.live_pods()) == 5)  # noqa: B023
        nodes.cluster.kube.remove(SCALE_PLANS, "p")
        nodes.cluster.kube.crash_in = write
        await nodes.settle()
        nodes.cluster.kube.crash_in = None
        assert size(nodes) == (2, 2)
        assert len(nodes.plans()) == 1, "the way back is made once"
        nodes.cluster.check_final_state()


@pytest.mark.guarantee("plan-runs-once-in-order")
@pytest.mark.parametrize("before_request_is_seen", [True, False])
async def test_a_plan_of_a_user_that_names_a_scale_in_as_its_owner_is_not_the_plan_of_it(
    before_request_is_seen: bool,
) -> None:
    nodes = await started(replicas=3)
    cluster = nodes.cluster
    await cluster.apply(SCALE_PLANS, "first", **plan_of(worker={"replicas": 4}))
    if not before_request_is_seen:
        await nodes.run_operator()
    await cluster.apply(SCALE_INS, "less", podNames=["job-worker-1"])
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": "ScaleIn",
        "name": "less",
        "uid": cluster.kube.objects[SCALE_INS, "less"]["metadata"]["uid"],
        "controller": True,
    }
    body = {
        "kind": "ScalePlan",
        "metadata": {"name": "own", "namespace": NAMESPACE, "ownerReferences": [owner]},
        "spec": {"jobName": JOB, **plan_of(worker={"replicas": 4})},
    }
    await cluster.create(SCALE_PLANS, body)
    await nodes.settle()
    assert nodes.plan("own")["phase"] in ("Succeeded", "Failed")
    assert status_of(nodes, SCALE_INS, "less")["phase"] == "ScaleSucceeded"
    assert status_of(nodes, SCALE_INS, "less")["pods"] == ["job-worker-1"]
    assert "job-worker-1" not in nodes.live_pods()


async def test_requests_created_at_the_same_time_go_in_the_order_of_their_uid() -> None:
    nodes = await started(replicas=2)
    for name, uid, replicas in (("b", "00", 3), ("a", "ff", 4)):
        await create_at_once(
            nodes, SCALE_PLANS, name, uid, **plan_of(worker={"replicas": replicas})
        )
    await nodes.settle()
    assert size(nodes) == (4, 4), "b has the lower UID and goes first"


@pytest.mark.guarantee("overlapping-requests", "operator-killed-between-writes")
@pytest.mark.parametrize("write", range(1, 6))
async def test_no_other_request_comes_before_a_scale_in_whose_plan_names_its_members(
    write: int,
) -> None:
    nodes = await started(replicas=4)
    await create_at_once(nodes, SCALE_INS, "two", "ff", count=2)
    nodes.cluster.kube.crash_in = write
    assert not await nodes.run_operator()
    await create_at_once(nodes, SCALE_INS, "one", "00", count=1)
    await nodes.settle()
    said = {name: status_of(nodes, SCALE_INS, name) for name in ("two", "one")}
    assert {each["phase"] for each in said.values()} == {"ScaleSucceeded"}, said
    assert nodes.live_pods() == ["job-worker-0"]


async def create_at_once(
    nodes: Nodes, resource: Resource, name: str, uid: str, **spec: Any
) -> None:
    """Create a request in the same second as others, with a UID that begins like this."""
    metadata = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"{uid}000000-0000-4000-8000-000000000000",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    body = {"kind": resource.kind, "metadata": metadata, "spec": {"jobName": JOB, **spec}}
    await nodes.cluster.create(resource, body)


@pytest.mark.guarantee("plan-runs-once-in-order")
async def test_a_manual_plan_is_not_superseded_by_an_automatic_one() -> None:
    nodes = await started(replicas=1)
    for number, source in enumerate(("Manual", "Auto", "Manual", "Auto", "Auto")):
        wanted = plan_of(worker={"replicas": number + 2})
        await nodes.cluster.apply(SCALE_PLANS, f"p{number}", source=source, **wanted)
    await nodes.settle()
    phases = [plan["status"]["phase"] for plan in nodes.plans()]
    assert phases == ["Succeeded", "Superseded", "Succeeded", "Superseded", "Succeeded"]
    assert nodes.plan("p1")["message"] == "by ScalePlan p4"


@pytest.mark.guarantee("finished-objects-are-pruned")
async def test_finished_plans_are_kept_up_to_the_limit_of_the_job() -> None:
    nodes = await started(replicas=1, runPolicy={"planHistoryLimit": 2})
    for number in range(5):
        await nodes.cluster.apply(
            SCALE_PLANS, f"p{number}", **plan_of(worker={"replicas": 1 + (number + 1) % 2})
        )
        await nodes.settle()
    assert [plan["metadata"]["name"] for plan in nodes.plans()] == ["p3", "p4"]


async def test_a_plan_that_ends_is_not_taken_for_a_deleted_one_when_no_history_is_kept() -> None:
    nodes = await started(replicas=2, runPolicy={"planHistoryLimit": 0})
    for name in ("first", "second"):
        await nodes.cluster.apply(SCALE_PLANS, name, createPods=[{}])
    await nodes.settle()
    await nodes.settle()
    reasons = [event.split(":")[0] for event in await nodes.cluster.events()]
    assert reasons.count("ScalingSucceeded") == 2
    assert "ScalingCancelled" not in reasons
    assert nodes.plans() == []


@pytest.mark.guarantee("finished-objects-are-pruned")
async def test_scale_outs_and_scale_ins_are_deleted_when_their_time_is_over() -> None:
    nodes = await started(replicas=2)
    await nodes.cluster.apply(SCALE_OUTS, "short", count=1, ttlSecondsAfterFinished=50)
    await nodes.cluster.apply(SCALE_INS, "long", count=1)
    await nodes.settle()
    assert (
        status_of(nodes, SCALE_OUTS, "short")["phase"]
        == status_of(nodes, SCALE_INS, "long")["phase"]
        == "ScaleSucceeded"
    )
    nodes.cluster.now += 60
    await nodes.run_operator()
    assert nodes.cluster.kube.all(SCALE_OUTS) == []
    assert len(nodes.cluster.kube.all(SCALE_INS)) == 1
    nodes.cluster.now += 86_400
    await nodes.run_operator()
    assert nodes.cluster.kube.all(SCALE_INS) == []


async def test_a_job_that_ends_begins_no_plan() -> None:
    cluster = Cluster(replicas=1, runPolicy={"activeDeadlineSeconds": 100})
    await cluster.start()
    await cluster.apply(SCALE_PLANS, "late", replicaResourceSpecs={"worker": {"replicas": 4}})
    owner = owner_reference(cluster.job(), controller=False)
    cluster.kube.edit_metadata(
        SCALE_PLANS, "late", lambda metadata: metadata.update(ownerReferences=[owner])
    )
    cluster.now += 1000
    await cluster.run_operator()
    status = cluster.job().status
    assert (status.phase, status.replica_statuses["worker"].indices) == ("Failed", "0")
    plan = cluster.kube.objects[SCALE_PLANS, "late"]["status"]
    assert plan["phase"] == "Failed"
    assert "startTime" not in plan
