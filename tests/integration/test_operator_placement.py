"""Tests leaving nodes, gang schedulers and the objects around the pods, on the real API server.

Kubelets are fake.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.meta import Json
from elasticjob_api.times import format_time
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    COSCHEDULING_POD_GROUPS,
    CRDS,
    ELASTIC_JOBS,
    NODES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SCALE_PLANS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VOLCANO_POD_GROUPS,
    Resource,
)
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster
from elasticjob_operator.core.manifests.infrastructure import (
    correction_patch,
    infrastructure_manifests,
)

from tests.support.fake_kubelet import kubelet
from tests.support.operator_process import (
    exists,
    job,
    operator,
    phase,
    status_of,
    workers,
)
from tests.support.service_accounts import kubeconfig_of
from tests.support.wait import until

pytestmark = pytest.mark.thorough

CLUSTER_ROLES = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False
)
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)


@asynccontextmanager
async def on_nodes(kube: Kube, namespace: str, *pods: str) -> AsyncIterator[list[str]]:
    """Bind each pod to a node of its own, and yield the nodes' names."""
    nodes = [f"{namespace}-{number}" for number in range(len(pods))]
    try:
        for node, pod in zip(nodes, pods, strict=True):
            await kube.create(NODES, None, {"metadata": {"name": node}})
            binding = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
            await kube.request("POST", PODS.path(namespace, pod, "binding"), body=binding)
        yield nodes
    finally:
        for node in nodes:
            if await exists(kube, NODES, "", node):
                await kube.delete(NODES, None, node)


async def running(kube: Kube, namespace: str, **spec: Any) -> None:
    """Create a job and wait until all of its members are ready."""
    await kube.create(ELASTIC_JOBS, namespace, job(**spec))
    await settled(kube, namespace, 2)


async def settled(kube: Kube, namespace: str, size: int) -> Json:
    """Wait until the job runs with this number of ready members and no plan; return its status."""

    def at_rest(status: Json) -> bool:
        ready = status.get("phase") == "Running" and status.get("workers") == f"{size}/{size}"
        return ready and "currentPlan" not in status

    return await until(
        f"the job with {size} members",
        lambda: status_of(kube, namespace, ELASTIC_JOBS, "job"),
        at_rest,
    )


async def disruptions(kube: Kube, namespace: str) -> list[Json]:
    """Return the plans of source Disruption once all of them have ended."""

    async def plans() -> list[Json]:
        return [
            p
            for p in (await kube.list(SCALE_PLANS, namespace))["items"]
            if p["spec"]["source"] == "Disruption"
        ]

    def ended(found: list[Json]) -> bool:
        return bool(found) and all("completionTime" in plan.get("status", {}) for plan in found)

    return await until("the notices have been dealt with", plans, ended)


def has_no_restart(status: Json) -> bool:
    return not status["replicaStatuses"]["worker"].get("restarts")


@pytest.mark.guarantee("drained-node", played=True)
async def test_a_member_on_a_cordoned_node_is_drained_and_replaced_uncounted(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await running(kube, namespace, runPolicy={"backoffLimit": 0})
        async with on_nodes(kube, namespace, "job-worker-0", "job-worker-1") as nodes:
            await kube.patch(NODES, None, nodes[0], {"spec": {"unschedulable": True}})
            (plan,) = await disruptions(kube, namespace)
            assert plan["status"]["phase"] == "Succeeded", plan
            assert plan["spec"]["removePods"] == [{"name": "job-worker-0"}]
            assert f"node {nodes[0]}" in plan["spec"]["reason"]
            assert plan["status"]["removedPods"] == ["job-worker-0"]
            assert "forcedPods" not in plan["status"], "it was drained"
            assert has_no_restart(await settled(kube, namespace, 2))
            assert await workers(kube, namespace) == ["job-worker-1", "job-worker-2"]
            found = await kube.get(ELASTIC_JOBS, namespace, "job")
            assert found["spec"]["replicaSpecs"]["worker"]["replicas"] == 2


async def test_members_on_unhealthy_nodes_are_replaced_away_from_all_such_nodes(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    policy = {"replaceOnNodeConditions": [{"type": "GPUUnhealthy", "seconds": 0}]}
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await running(kube, namespace, runPolicy=policy)
        async with on_nodes(kube, namespace, "job-worker-0", "job-worker-1") as nodes:
            for node in nodes:
                condition = {
                    "type": "GPUUnhealthy",
                    "status": "True",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
                await kube.patch(
                    NODES, None, node, {"status": {"conditions": [condition]}}, subresource="status"
                )
            replaced = {"job-worker-0", "job-worker-1"}.isdisjoint
            await until(
                "both are replaced", lambda: workers(kube, namespace), replaced, seconds=120
            )
            plans = await disruptions(kube, namespace)
            assert {plan["status"]["phase"] for plan in plans} == {"Succeeded"}, plans
            # The replacement of job-worker-1, which was created when both nodes were known. It has
            # the index of job-worker-0 if that pod was already gone.
            (plan,) = [
                plan
                for plan in plans
                if {"name": "job-worker-1", "avoidNode": True} in plan["spec"]["migratePods"]
            ]
            (index,) = [
                move["replacement"] for move in plan["status"]["migrations"] if move["index"] == 1
            ]
            (pod,) = [
                pod
                for pod in (await kube.list(PODS, namespace))["items"]
                if pod["metadata"]["labels"].get(names.LABEL_INDEX) == str(index)
            ]
            affinity = pod["spec"]["affinity"]["nodeAffinity"]
            required = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
            (term,) = required["nodeSelectorTerms"]
            assert [field["values"] for field in term["matchFields"]] == [
                [node] for node in sorted(nodes)
            ]
            assert has_no_restart(await settled(kube, namespace, 2))


@pytest.mark.guarantee("worker-deleted-evicted-preempted", played=True)
async def test_a_pod_marked_for_disruption_is_drained_before_its_deletion(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await running(kube, namespace, runPolicy={"backoffLimit": 0})
        # Kubernetes takes a condition without a time for an old one, and sets it to false.
        condition = {"type": "DisruptionTarget", "status": "True"}
        condition["reason"] = "PreemptionByScheduler"
        condition["lastTransitionTime"] = format_time(time.time())
        marked = [{"type": "Ready", "status": "True"}, condition]
        await kube.patch(
            PODS,
            namespace,
            "job-worker-1",
            {"status": {"conditions": marked}},
            subresource="status",
        )
        (plan,) = await disruptions(kube, namespace)
        assert (plan["status"]["phase"], plan["status"]["removedPods"]) == (
            "Succeeded",
            ["job-worker-1"],
        ), plan
        assert "PreemptionByScheduler" in plan["spec"]["reason"]
        assert has_no_restart(await settled(kube, namespace, 2))


@pytest.mark.guarantee("uncounted-failures", "worker-deleted-evicted-preempted", played=True)
async def test_an_evicted_member_is_replaced_and_is_not_a_failure_of_the_job(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await running(kube, namespace, runPolicy={"backoffLimit": 0})
        async with on_nodes(kube, namespace, "job-worker-0", "job-worker-1") as nodes:
            # As `kubectl drain` does: cordon, then evict the present pods.
            await kube.patch(NODES, None, nodes[0], {"spec": {"unschedulable": True}})
            eviction = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": "job-worker-0"},
            }
            await kube.request(
                "POST", PODS.path(namespace, "job-worker-0", "eviction"), body=eviction
            )

            async def replaced() -> bool:
                present = await workers(kube, namespace)
                return "job-worker-0" not in present and len(present) == 2

            await until("the evicted member is replaced", replaced)
            plans = (await kube.list(SCALE_PLANS, namespace))["items"]
            assert len(plans) <= 1, plans
            assert has_no_restart(await settled(kube, namespace, 2))


async def test_without_the_right_to_read_nodes_the_operator_reports_it_and_works(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with limited_to(cluster, kube, namespace, tmp_path) as kubeconfig:
        log = tmp_path / "log"
        async with operator(kubeconfig, namespace, log), kubelet(kube, namespace):
            await running(kube, namespace)
            assert log.read_text().count("grant list and watch of nodes") == 1


@asynccontextmanager
async def limited_to(
    cluster: Cluster, kube: Kube, namespace: str, directory: Path
) -> AsyncIterator[Path]:
    """Yield a kubeconfig with all rights in the namespace, and elsewhere only to our kinds."""
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    ours = [{"apiGroups": [names.GROUP], "resources": ["*"], "verbs": ["get", "list", "watch"]}]
    subject = [{"kind": "ServiceAccount", "name": "limited", "namespace": namespace}]
    group = "rbac.authorization.k8s.io"
    await kube.create(SERVICE_ACCOUNTS, namespace, {"metadata": {"name": "limited"}})
    await kube.create(ROLES, namespace, {"metadata": {"name": "limited"}, "rules": everything})
    await kube.create(CLUSTER_ROLES, None, {"metadata": {"name": namespace}, "rules": ours})
    bound = {"metadata": {"name": "limited"}, "subjects": subject}
    role = {"apiGroup": group, "kind": "Role", "name": "limited"}
    await kube.create(ROLE_BINDINGS, namespace, {**bound, "roleRef": role})
    role = {"apiGroup": group, "kind": "ClusterRole", "name": namespace}
    bound = {"metadata": {"name": namespace}, "subjects": subject}
    await kube.create(CLUSTER_ROLE_BINDINGS, None, {**bound, "roleRef": role})
    try:
        yield await kubeconfig_of("limited", cluster, kube, namespace, directory)
    finally:
        await kube.delete(CLUSTER_ROLE_BINDINGS, None, namespace)
        await kube.delete(CLUSTER_ROLES, None, namespace)


@asynccontextmanager
async def defined(kube: Kube, resource: Resource) -> AsyncIterator[None]:
    """Define a scheduler's kind in the cluster, with any content."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    body: Json = {
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            # The API server requires this of every definition in a group of *.k8s.io.
            "annotations": {
                "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
            },
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"plural": resource.plural, "kind": resource.kind},
            "versions": [version],
        },
    }
    await kube.create(CRDS, None, body)
    try:
        yield
    finally:
        await kube.delete(CRDS, None, body["metadata"]["name"])
        await until(
            "the definition is deleted", lambda: _gone(kube, CRDS, "", body["metadata"]["name"])
        )


async def _gone(kube: Kube, resource: Resource, namespace: str, name: str) -> bool:
    return not await exists(kube, resource, namespace, name)


@pytest.mark.parametrize(
    ("gang", "resource"),
    [("volcano", VOLCANO_POD_GROUPS), ("coscheduling", COSCHEDULING_POD_GROUPS)],
)
async def test_a_gang_waits_for_its_schedulers_definition_and_then_has_its_pod_group(
    gang: str, resource: Resource, cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    queue = {"queue": "team"} if gang == "volcano" else {}
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        policy = {"schedulingPolicy": {"gang": gang, **queue}}
        created = await kube.create(ELASTIC_JOBS, namespace, job(runPolicy=policy))

        async def explained() -> bool:
            status = (await kube.get(ELASTIC_JOBS, namespace, "job")).get("status", {})
            return f"podgroups.{resource.group}" in status.get("message", "")

        await until("the job names the missing definition", explained)
        assert (await kube.list(PODS, namespace))["items"] == []
        async with defined(kube, resource):
            status = await settled(kube, namespace, 2)
            assert not status.get("message"), status
            group = await kube.get(resource, namespace, "job")
            assert group["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"]
            assert (group["spec"]["minMember"], group["spec"]["minResources"]["cpu"]) == (2, "0.2")
            assert group["spec"].get("queue") == queue.get("queue")
            for name in ("job-master", "job-worker-0"):
                pod = await kube.get(PODS, namespace, name)
                assert pod["spec"]["schedulerName"] == (
                    "volcano" if queue else "scheduler-plugins-scheduler"
                )
            edit = {"spec": {"replicaSpecs": {"worker": {"minReplicas": 2}}}}
            await kube.patch(ELASTIC_JOBS, namespace, "job", edit)

            async def follows() -> bool:
                spec = (await kube.get(resource, namespace, "job"))["spec"]
                return bool(spec["minMember"] == 3 and spec["minResources"]["cpu"] == "0.3")

            await until("the PodGroup follows minReplicas", follows)


async def test_a_native_gang_on_a_cluster_without_it_waits_and_names_the_feature_gate(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        policy = {"schedulingPolicy": {"gang": "native"}}
        await kube.create(ELASTIC_JOBS, namespace, job(runPolicy=policy))

        async def message() -> str:
            status = (await kube.get(ELASTIC_JOBS, namespace, "job")).get("status", {})
            return str(status.get("message", ""))

        await until(
            "the job names the gate", message, lambda text: "feature gate GenericWorkload" in text
        )
        assert (await kube.list(PODS, namespace))["items"] == []


async def test_a_job_suspended_by_kueue_starts_when_unsuspended_and_passes_on_its_queue(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        body = job(runPolicy={"suspend": True})
        body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
        await kube.create(ELASTIC_JOBS, namespace, body)
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Suspended")
        assert (await kube.list(PODS, namespace))["items"] == []
        await kube.patch(
            ELASTIC_JOBS, namespace, "job", {"spec": {"runPolicy": {"suspend": False}}}
        )
        await settled(kube, namespace, 2)
        for pod in (await kube.list(PODS, namespace))["items"]:
            assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"


async def test_the_api_server_stores_objects_as_the_operator_wants_them(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    """Otherwise every operator that starts would correct objects that are right."""
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await running(kube, namespace)
    kinds = {
        each.kind: each for each in (SERVICE_ACCOUNTS, CONFIG_MAPS, SERVICES, ROLES, ROLE_BINDINGS)
    }
    for manifest in infrastructure_manifests(
        await kube.get(ELASTIC_JOBS, namespace, "job", as_type=ElasticJob)
    ):
        found = await kube.get(kinds[manifest["kind"]], namespace, manifest["metadata"]["name"])
        assert correction_patch(manifest, found) == {}, manifest
