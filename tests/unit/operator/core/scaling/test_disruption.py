"""Tests that members on a node that will be removed are drained and replaced once.

This is a plan in the same queue as every other change.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_api.names import API_VERSION
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_kube.resources import ELASTIC_JOBS, NODES, PODS, SCALE_OUTS, SCALE_PLANS
from elasticjob_operator.core.model.nodes import CORDONED, LEAVING_REASONS, Node, leaving_reason
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.model.pods import Pods
from elasticjob_operator.core.scaling import disruption
from elasticjob_operator.core.scaling.disruption import plans_for_disruptions
from elasticjob_operator.store import Store

from tests.support.job_cluster import pod_names
from tests.support.simulator.cluster import JOB, NAMESPACE, Cluster, job_body


def node(
    name: str = "n1", *taints: str, version: int = 1, unschedulable: bool = False, **metadata: str
) -> Node:
    body = {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            **metadata,
        },
        "spec": {
            "unschedulable": unschedulable,
            "taints": [{"key": key, "effect": "NoSchedule"} for key in taints],
        },
    }
    return msgspec.convert(body, Node)


@pytest.mark.parametrize(
    "key", [key for key in LEAVING_REASONS if key != "metadata.deletionTimestamp"]
)
def test_a_node_with_a_documented_taint_is_leaving(key: str) -> None:
    assert leaving_reason(node("n1", "example.com/other", key)) == key


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/memory-pressure",
        "kubernetes.azure.com/scalesetpriority",
        "DeletionCandidateOfClusterAutoscaler",
        "nvidia.com/gpu",
    ],
)
def test_a_node_that_may_come_back_or_is_only_special_stays(key: str) -> None:
    assert leaving_reason(node("n1", key)) is None


def test_a_cordoned_and_a_deleted_node_are_leaving_and_a_taint_says_why() -> None:
    assert leaving_reason(node()) is None
    assert leaving_reason(node(unschedulable=True)) == CORDONED
    assert (
        leaving_reason(node("n1", CORDONED, "karpenter.sh/disrupted", unschedulable=True))
        == "karpenter.sh/disrupted"
    )
    assert leaving_reason(node(deletionTimestamp="2026-01-01T00:00:00Z")) in LEAVING_REASONS


def test_every_taint_is_documented_with_its_meaning() -> None:
    page = (Path(__file__).parents[5] / "docs" / "placement.md").read_text()
    reasons = {
        key: why for key, why in LEAVING_REASONS.items() if key != "metadata.deletionTimestamp"
    }
    missing = [key for key, why in reasons.items() if f"| `{key}` | {why} |" not in page]
    assert missing == []


def observe(
    *pods: Json, plans: tuple[ScalePlan, ...] = (), worker: Json | None = None, **leaving: str
) -> Observed:
    body = job_body(3, 1, 6, worker=worker or {})
    body["metadata"] |= {"uid": "job-uid"}
    body["status"] = {
        "phase": "Running",
        "replicaStatuses": {
            "worker": {"desired": 3, "indices": "0-2", "resourcesByIndex": {"1": {"memory": "4Gi"}}}
        },
    }
    return Observed(
        job=msgspec.convert(body, ElasticJob),
        pods=Pods(msgspec.convert(pod, Pod) for pod in pods),
        plans=plans,
        leaving_nodes=leaving,
    )


def pod(
    index: int, on: str = "n1", role: str = "worker", phase: str = "Running", **more: Any
) -> Json:
    labels = {"elasticjob.dev/role": role, "elasticjob.dev/index": str(index)}
    name = f"{JOB}-{role}-{index}"
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels, **more.pop("metadata", {})}
    return {"metadata": metadata, "spec": {"nodeName": on}, "status": {"phase": phase, **more}}


def spec_of(observed: Observed) -> Json:
    (created,) = plans_for_disruptions(observed)
    return dict(created.body["spec"])


def drain_plan(observed: Observed) -> ScalePlan:
    """Return the plan as the API server would have it."""
    (created,) = plans_for_disruptions(observed)
    return msgspec.convert(created.body, ScalePlan)


def test_all_members_concerned_are_in_one_plan_that_says_why_and_keeps_what_was_set_for_them() -> (
    None
):
    observed = observe(pod(0), pod(1), pod(2, "n2"), n1=CORDONED)
    spec = spec_of(observed)
    assert spec["source"] == "Disruption"
    assert spec["removePods"] == [{"name": "job-worker-0"}, {"name": "job-worker-1"}]
    assert spec["createPods"] == [{}, {"resource": {"memory": "4Gi"}}], (
        "a role is left out where it is the default"
    )
    assert spec["reason"].startswith("node n1: the node is cordoned")
    assert drain_plan(observed).metadata.name == drain_plan(observed).metadata.name
    assert drain_plan(observed).metadata.name.startswith("job-disruption-")
    assert len(drain_plan(observed).metadata.name) == len("job-disruption-") + 10


def test_a_pod_that_is_the_target_of_a_disruption_is_concerned_wherever_it_runs() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    spec = spec_of(
        observe(
            pod(0),
            pod(1, conditions=[condition]),
            pod(2, conditions=[{**condition, "status": "False"}]),
        )
    )
    assert spec["removePods"] == [{"name": "job-worker-1"}]
    assert "EvictionByEvictionAPI" in spec["reason"]


def test_a_pod_deleted_for_a_taint_of_its_node_is_restarted_without_a_drain() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
    assert plans_for_disruptions(observe(pod(0), pod(1, conditions=[condition]))) == []


def test_other_pods_get_no_plan() -> None:
    assert plans_for_disruptions(observe(pod(0), pod(1))) == []
    others = (
        pod(0, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        pod(1, phase="Failed"),
        pod(2, on=""),
        pod(7),
        pod(0, role="master"),
    )
    assert plans_for_disruptions(observe(*others, n1=CORDONED)) == []


def test_a_pod_gets_one_notice_for_any_end_of_its_plan() -> None:
    first = drain_plan(observe(pod(0), n1=CORDONED))
    for phase in ("Pending", "Draining", "Succeeded", "Failed", "Cancelled"):
        plan = msgspec.structs.replace(
            first,
            status=msgspec.convert(
                {"phase": phase, "startTime": "2026-01-01T00:00:00Z"}, type(first.status)
            ),
        )
        assert plans_for_disruptions(observe(pod(0), plans=(plan,), n1=CORDONED)) == []
        later = drain_plan(observe(pod(0), pod(1), plans=(plan,), n1=CORDONED))
        assert [wish.name for wish in later.spec.remove_pods] == ["job-worker-1"]
        assert later.metadata.name != first.metadata.name


def test_a_pod_that_a_running_plan_removes_anyway_gets_no_notice() -> None:
    body = {
        "metadata": {"name": "p", "uid": "p"},
        "spec": {"jobName": JOB, "removePods": [{"role": "worker", "index": 0}]},
        "status": {"phase": "Draining", "drainingPods": ["job-worker-0"]},
    }
    assert (
        plans_for_disruptions(
            observe(pod(0), plans=(msgspec.convert(body, ScalePlan),), n1=CORDONED)
        )
        == []
    )


@pytest.mark.parametrize(
    ("toleration", "stays"),
    [
        ({"key": CORDONED, "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists"}, True),
        ({"key": None, "operator": "Exists"}, True),
        ({"key": "nvidia.com/gpu", "operator": "Exists"}, False),
        ({"key": "nvidia.com/gpu", "value": "present"}, False),
    ],
)
def test_a_role_that_tolerates_the_taint_stays_or_it_would_be_replaced_without_an_end(
    toleration: Json, stays: bool
) -> None:
    template = {
        "spec": {"containers": [{"name": "train", "command": ["t"]}], "tolerations": [toleration]}
    }
    observed = observe(pod(0), worker={"template": template}, n1=CORDONED)
    assert (plans_for_disruptions(observed) == []) == stays


def test_more_members_than_a_plan_can_list_get_several_plans() -> None:
    pods = [pod(index) for index in range(1500)]
    everyone = observe(*pods, n1=CORDONED)
    replica = msgspec.structs.replace(
        everyone.job.status.replica_statuses["worker"], indices="0-1499"
    )
    status = msgspec.structs.replace(everyone.job.status, replica_statuses={"worker": replica})
    job = msgspec.structs.replace(everyone.job, status=status)
    first = drain_plan(Observed(job=job, pods=everyone.pods, leaving_nodes={"n1": CORDONED}))
    rest = drain_plan(
        Observed(job=job, pods=everyone.pods, plans=(first,), leaving_nodes={"n1": CORDONED})
    )
    assert (len(first.spec.remove_pods), len(rest.spec.remove_pods)) == (1000, 500)


def test_a_plan_that_begins_omits_deleted_pods_and_their_replacements() -> None:
    plan = drain_plan(observe(pod(0), pod(1), pod(2), n1=CORDONED))
    seen = observe(pod(1), pod(2, phase="Failed"), n1=CORDONED)
    rest = disruption.as_needed_now(seen, plan, 0.0)
    assert [wish.name for wish in rest.spec.remove_pods] == ["job-worker-1"]
    assert [wish.resource["memory"] for wish in rest.spec.create_pods] == ["4Gi"]
    assert not disruption.is_empty(rest)
    assert disruption.is_empty(disruption.as_needed_now(observe(), plan, 0.0))


def test_a_node_s_news_concerns_the_jobs_with_pods_there_and_nothing_else() -> None:
    store = Store()
    owner = {
        "apiVersion": API_VERSION,
        "uid": "job-uid",
        "kind": "ElasticJob",
        "name": JOB,
        "controller": True,
    }
    for number, where in ((0, "n1"), (1, "n1"), (2, "n2")):
        body = pod(number, where)
        body["metadata"] |= {"namespace": NAMESPACE, "ownerReferences": [owner]}
        body["metadata"]["labels"]["elasticjob.dev/job-name"] = JOB
        store.update_pod(None, msgspec.convert(body, Pod))
    assert store.update_node(None, node("n1")) == []
    assert [str(key) for key in store.update_node(node("n1"), node("n1", unschedulable=True))] == [
        f"{NAMESPACE}/{JOB}"
    ]
    assert (
        store.update_node(node("n1", unschedulable=True), node("n1", unschedulable=True, version=2))
        == []
    )
    assert store.update_node(None, node("n3", unschedulable=True)) == []
    assert len(store.update_node(node("n1", unschedulable=True), None)) == 1


# --- with the whole engine


async def world_on_nodes(replicas: int = 3, **spec: Any) -> Cluster:
    """Return a running job whose worker i is on node n<i>; replacements stay unbound."""
    cluster = Cluster(replicas=replicas, **spec)
    await cluster.start()
    for index, each in enumerate(cluster.kube.pods()):
        bind(cluster, each["metadata"]["name"], f"n{index}")
        cluster.kube._store(
            NODES, {"metadata": {"name": f"n{index}", "uid": f"node-{index}"}, "spec": {}}
        )
    await cluster.settle()
    return cluster


def bind(cluster: Cluster, name: str, node: str) -> None:
    cluster.kube.edit(PODS, name, lambda spec: spec.update(nodeName=node))


def cordon(cluster: Cluster, *nodes: str) -> None:
    for name in nodes:
        found = cluster.kube.objects[NODES, name]
        found["spec"]["unschedulable"] = True
        cluster.kube._store(NODES, found)


async def test_a_member_on_a_cordoned_node_is_drained_and_replaced_at_the_same_size_uncounted() -> (
    None
):
    cluster = await world_on_nodes()
    cordon(cluster, "n1")
    await cluster.settle()
    (plan,) = cluster.kube.all(SCALE_PLANS)
    assert plan["spec"]["source"] == "Disruption"
    assert (plan["status"]["phase"], plan["status"]["removedPods"]) == (
        "Succeeded",
        ["job-worker-1"],
    ), plan
    assert pod_names(cluster) == [
        "job-worker-0",
        "job-worker-2",
        "job-worker-3",
    ]
    replica = cluster.job().status.replica_statuses["worker"]
    assert (replica.desired, replica.restarts) == (3, 0)
    assert cluster.job().spec.replica_specs["worker"].replicas == 3
    cluster.check_final_state()
    writes = cluster.kube.writes
    await cluster.run_operator()
    assert cluster.kube.writes == writes


@pytest.mark.parametrize("at", range(1, 14))
async def test_an_operator_that_dies_at_any_write_gives_no_second_notice(at: int) -> None:
    cluster = await world_on_nodes()
    cordon(cluster, "n0", "n2")
    cluster.kube.crash_in = at
    await cluster.settle()
    cluster.check_final_state()
    (plan,) = cluster.kube.all(SCALE_PLANS)
    assert plan["status"]["phase"] == "Succeeded", plan
    assert plan["status"]["removedPods"] == ["job-worker-0", "job-worker-2"]
    assert len(cluster.kube.pods()) == 3


async def test_a_notice_waits_its_turn_and_repair_is_not_undone_by_it() -> None:
    cluster = await world_on_nodes()
    await cluster.apply(SCALE_OUTS, "more", count=1)
    await cluster.run_operator()  # the ScaleOut waits for its new member
    cordon(cluster, "n1")
    await cluster.run_operator()
    (waiting,) = [p for p in cluster.kube.all(SCALE_PLANS) if p["spec"]["source"] == "Disruption"]
    assert waiting.get("status", {}).get("phase") in (None, "Pending")
    cluster.kube.mark_deleted(PODS, "job-worker-1")  # the node's drain is faster
    await cluster.settle()
    (plan,) = [p for p in cluster.kube.all(SCALE_PLANS) if p["spec"]["source"] == "Disruption"]
    assert plan["status"]["phase"] == "Cancelled", plan
    assert "gone or leaving" in plan["status"]["message"]
    cluster.check_final_state()
    assert len(cluster.kube.pods()) == 4


async def test_a_node_that_stays_before_the_plans_turn_keeps_its_members_and_may_leave_later() -> (
    None
):
    cluster = await world_on_nodes()
    await cluster.apply(SCALE_OUTS, "more", count=1)
    await cluster.run_operator()  # the ScaleOut waits for its new member
    cordon(cluster, "n0", "n1")
    await cluster.run_operator()
    uncordon(cluster, "n0", "n1")
    await cluster.settle()
    (lapsed,) = disruptions(cluster)
    assert lapsed["status"]["phase"] == "Cancelled", lapsed
    assert "its cause has gone" in lapsed["status"]["message"]
    assert pod_names(cluster) == [f"job-worker-{index}" for index in range(4)]
    cordon(cluster, "n1")
    await cluster.settle()
    _, later = disruptions(cluster)
    assert later["status"]["removedPods"] == ["job-worker-1"], later
    cluster.check_final_state()


async def test_a_plan_for_two_nodes_of_which_one_stays_replaces_the_members_of_the_other() -> None:
    cluster = await world_on_nodes()
    await cluster.apply(SCALE_OUTS, "more", count=1)
    await cluster.run_operator()
    cordon(cluster, "n0", "n1")
    await cluster.run_operator()
    uncordon(cluster, "n0")
    await cluster.settle()
    (plan,) = disruptions(cluster)
    assert plan["status"]["removedPods"] == ["job-worker-1"], plan
    cluster.check_final_state()


async def test_a_notice_does_not_wait_for_new_members_that_find_no_node() -> None:
    cluster = await world_on_nodes()
    await cluster.apply(SCALE_OUTS, "more", count=2, timeoutSeconds=600)
    await cluster.run_operator()
    begun = cluster.now
    cordon(cluster, "n1")
    while not any(plan["status"].get("startTime") for plan in disruptions(cluster)):
        assert cluster.now < begun + 60, cluster.kube.all(SCALE_PLANS)
        await cluster.run_operator()
    [scale_out] = [p for p in cluster.kube.all(SCALE_PLANS) if p["spec"]["source"] != "Disruption"]
    assert scale_out["status"]["message"].startswith("after 30 s, because ScalePlan job-disruption")
    await cluster.settle()
    assert len(cluster.kube.pods()) == 5, "by onTimeout Keep the new members come when they can"
    cluster.check_final_state()


def disruptions(cluster: Cluster) -> list[Json]:
    """Return the Disruption plans, oldest first."""
    plans = [p for p in cluster.kube.all(SCALE_PLANS) if p["spec"]["source"] == "Disruption"]
    return sorted(plans, key=lambda plan: int(plan["metadata"]["resourceVersion"]))


def uncordon(cluster: Cluster, *nodes: str) -> None:
    for name in nodes:
        found = cluster.kube.objects[NODES, name]
        del found["spec"]["unschedulable"]
        cluster.kube._store(NODES, found)


async def test_the_plan_of_a_pod_that_is_still_there_is_not_pruned() -> None:
    """The operator would otherwise create another plan for the pod, again and again."""
    cluster = await world_on_nodes(replicas=2, runPolicy={"planHistoryLimit": 0})
    # A plan that is refused leaves its pod where it is.
    cluster.kube.objects[ELASTIC_JOBS, JOB]["spec"]["replicaSpecs"]["worker"]["minReplicas"] = 3
    cluster.kube._store(ELASTIC_JOBS, cluster.kube.objects[ELASTIC_JOBS, JOB])
    cordon(cluster, "n1")
    await cluster.settle()
    (plan,) = cluster.kube.all(SCALE_PLANS)
    assert plan["status"]["phase"] == "Failed", plan
    cluster.kube.mark_deleted(PODS, "job-worker-1")
    await cluster.settle()
    assert cluster.kube.all(SCALE_PLANS) == [], "its pod is gone"
    cluster.check_final_state()


async def test_a_suspended_job_gets_no_notice() -> None:
    cluster = await world_on_nodes()
    cluster.edit_policy(suspend=True)
    cordon(cluster, "n0", "n1", "n2")
    await cluster.settle()
    assert cluster.kube.all(SCALE_PLANS) == []
