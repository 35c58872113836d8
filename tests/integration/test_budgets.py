"""PodDisruptionBudgets and HPAs of users, as Kubernetes' own controllers count a job's pods."""

from __future__ import annotations

import time
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_client.access import Access
from elasticjob_client.diagnosis import diagnose
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import DISRUPTION_BUDGETS, ELASTIC_JOBS, POD_AUTOSCALERS, PODS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.wait import until

CONTAINERS = [{"name": "train", "image": "train:1", "command": ["train"]}]


async def ready_job(kube: Kube, namespace: str, name: str, **roles: int) -> None:
    """Create a job, a ready pod of its master, and ready pods of its roles."""
    template = {"spec": {"containers": CONTAINERS}}
    specs = {role: {"replicas": size, "template": template} for role, size in roles.items()}
    spec = {"framework": "custom", "replicaSpecs": specs}
    body = {"apiVersion": names.API_VERSION, "kind": "ElasticJob", "metadata": {"name": name}}
    job = await kube.create(ELASTIC_JOBS, namespace, {**body, "spec": spec})
    owner = {**body, "controller": True, "name": name, "uid": job["metadata"]["uid"]}
    del owner["metadata"]
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
    for role, size in {"master": 1, **roles}.items():
        for index in range(size):
            pod = f"{name}-{role}-{index}"
            labels = {names.LABEL_JOB_NAME: name, names.LABEL_ROLE: role}
            metadata = {"name": pod, "labels": labels, "ownerReferences": [owner]}
            await kube.create(
                PODS, namespace, {"metadata": metadata, "spec": {"containers": CONTAINERS}}
            )
            await kube.patch(PODS, namespace, pod, {"status": ready}, subresource="status")


async def budget(
    kube: Kube, namespace: str, name: str, labels: Json, *, allows: int, because: str, **bound: Any
) -> None:
    """Create a budget, and wait until Kubernetes allows this number of evictions."""
    spec = {"selector": {"matchLabels": labels}, **bound}
    await kube.create(DISRUPTION_BUDGETS, namespace, {"metadata": {"name": name}, "spec": spec})

    async def allowed() -> bool:
        status = (await kube.get(DISRUPTION_BUDGETS, namespace, name)).get("status") or {}
        conditions = status.get("conditions") or ()
        if any("no matches for kind" in each["message"] for each in conditions):
            # The controller has not yet noticed the definitions of this new control plane.
            again = {"metadata": {"annotations": {"tried": str(time.monotonic())}}}
            await kube.patch(DISRUPTION_BUDGETS, namespace, name, again)
        reasons = [each["reason"] for each in conditions]
        return reasons == [because] and status["disruptionsAllowed"] == allows

    await until(f"budget {name} allows {allows}", allowed)


@pytest.mark.guarantee("doctor-names-what-is-missing")
async def test_the_doctor_names_budgets_that_count_other_pods_than_they_select(
    cluster: Cluster, kube: Kube, namespace: str
) -> None:
    await ready_job(kube, namespace, "two", worker=2)
    await ready_job(kube, namespace, "sweep", trial=3)
    whole = {names.LABEL_JOB_NAME: "two"}
    workers = {**whole, names.LABEL_ROLE: "worker"}
    trials = {names.LABEL_JOB_NAME: "sweep", names.LABEL_ROLE: "trial"}
    enough = "SufficientPods"
    for name, labels, allows, because, bound in (
        ("wide", whole, 2, enough, {"maxUnavailable": 1}),  # of three pods, the master's is one
        ("stuck", trials, 0, "SyncFailed", {"maxUnavailable": 1}),
        # As docs/placement.md says:
        ("role", workers, 1, enough, {"maxUnavailable": 1}),
        ("trials", trials, 1, enough, {"minAvailable": 2}),
    ):
        await budget(kube, namespace, name, labels, allows=allows, because=because, **bound)

    target = {"apiVersion": names.API_VERSION, "kind": "ElasticJob", "name": "sweep"}
    spec = {"scaleTargetRef": target, "minReplicas": 4, "maxReplicas": 8}
    await kube.create(POD_AUTOSCALERS, namespace, {"metadata": {"name": "hpa"}, "spec": spec})
    found = await diagnose(Access(cluster.kubeconfig, None, namespace))
    problems = [finding.message for finding in found if finding.check == "budgets"]
    assert len(problems) == 3
    assert (
        "PodDisruptionBudget stuck allows no eviction, as the job has no role worker" in problems[0]
    )
    assert "PodDisruptionBudget wide allows 2 evictions at once: it selects 3 pods" in problems[1]
    assert "hpa of job sweep changes nothing: the job has no role worker" in problems[2]


async def test_a_scale_of_a_job_without_the_role_names_another_way(
    kube: Kube, namespace: str
) -> None:
    await ready_job(kube, namespace, "sweep", trial=1)
    scale = {"spec": {"replicas": 3}}
    with pytest.raises(Refused) as refusal:
        await kube.patch(ELASTIC_JOBS, namespace, "sweep", scale, subresource="scale")
    assert (
        "the job has no role worker, the one that kubectl scale and HPAs change; change "
        '["trial"] by elasticjob scale --role, a ScaleOut, ScaleIn or ScalePlan'
    ) in refusal.value.message
    assert "no such key" not in refusal.value.message
