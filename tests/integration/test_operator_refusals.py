"""Checks that objects rejected for one job are reported or retried, and delay no other job."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    ELASTIC_JOBS,
    LIMIT_RANGES,
    PODS,
    RESOURCE_QUOTAS,
)
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.chaos_proxy import chaos_proxy
from tests.support.fake_kubelet import kubelet
from tests.support.operator_process import (
    create,
    job,
    operator,
    phase,
    run_job,
    status_of,
    workers,
)
from tests.support.wait import until


@pytest.mark.guarantee("api-server-refuses-for-now")
async def test_pods_denied_by_an_admission_policy_are_reported_and_delay_no_other_job(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with (
        _denied(kube, namespace, "barred"),
        operator(cluster.kubeconfig, namespace, tmp_path / "log"),
        kubelet(kube, namespace),
    ):
        await kube.create(ELASTIC_JOBS, namespace, job("barred"))
        await until(
            "the status says why",
            lambda: status_of(kube, namespace, ELASTIC_JOBS, "barred"),
            lambda status: "barred by the house rules" in status.get("message", ""),
        )
        await kube.create(ELASTIC_JOBS, namespace, job("free"))
        await phase(kube, namespace, ELASTIC_JOBS, "free", "Running")
        assert await workers(kube, namespace, "barred") == []


@pytest.mark.guarantee("pods-that-cannot-start")
async def test_pods_that_stay_refused_fail_the_job_by_its_deadline_and_use_up_no_name(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        body = job("late", runPolicy={"pendingDeadlineSeconds": 4})
        worker_spec(body)["priorityClassName"] = "no-such-class"
        await kube.create(ELASTIC_JOBS, namespace, body)
        refused = await condition(kube, namespace, "late", "PodsRefused")
        assert "no PriorityClass with name no-such-class" in refused["message"], refused
        status = await phase(kube, namespace, ELASTIC_JOBS, "late", "Failed")
        for part in ("pendingDeadlineSeconds: late-worker-", "4 s", "no PriorityClass with name"):
            assert part in status["message"], status
        assert status["replicaStatuses"]["worker"].get("incarnations", 0) == 0, status


@pytest.mark.guarantee("pods-that-cannot-start")
@pytest.mark.parametrize("invalid", ["worker", "master"])
async def test_a_template_that_is_invalid_for_the_api_server_fails_the_job_at_once(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path, invalid: str
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        body = job("wrong")
        if invalid == "worker":
            mount = {"name": "nowhere", "mountPath": "/data"}
            worker_spec(body)["containers"][0]["volumeMounts"] = [mount]
            field = "spec.replicaSpecs.worker.template: "
            why = 'spec.containers[0].volumeMounts[0].name: Not found: "nowhere"'
        else:
            body["spec"]["master"] = {"template": {"spec": {"dnsPolicy": "None"}}}
            field = "spec.master: "
            why = "spec.dnsConfig: Required value"
        await kube.create(ELASTIC_JOBS, namespace, body)
        status = await phase(kube, namespace, ELASTIC_JOBS, "wrong", "Failed")
        assert status["message"].startswith(field), status
        assert why in status["message"], status


@pytest.mark.guarantee("pods-that-cannot-start")
async def test_members_get_no_pods_while_the_masters_pod_is_refused(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        async with _denied(kube, namespace, "job", role="master"):
            await kube.create(ELASTIC_JOBS, namespace, job())
            await until(
                "the status says why and for what the workers wait",
                lambda: status_of(kube, namespace, ELASTIC_JOBS, "job"),
                lambda status: (
                    "worker waits for master" in status.get("message", "")
                    and "barred by the house rules" in status["message"]
                ),
            )
            assert await workers(kube, namespace) == []
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Running", seconds=60)
        assert await workers(kube, namespace) == ["job-worker-0", "job-worker-1"]


@pytest.mark.guarantee("pods-that-cannot-start")
async def test_a_namespace_with_a_quota_on_limits_and_narrow_limit_ranges_admits_a_default_master(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    hard = {"requests.cpu": "4", "limits.cpu": "4", "limits.memory": "1600Mi"}
    await create(kube, namespace, RESOURCE_QUOTAS, "with-limits", hard=hard)
    bounds = {"type": "Container", "min": {"cpu": "200m", "memory": "192Mi"}}
    bounds |= {"max": {"cpu": "500m", "memory": "512Mi"}}
    bounds |= {"maxLimitRequestRatio": {"memory": "2"}}
    await create(kube, namespace, LIMIT_RANGES, "narrow", limits=[bounds])
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        body = job()
        body["spec"]["agent"]["source"] = "InitContainer"
        amounts = {"cpu": "400m", "memory": "512Mi"}
        worker_spec(body)["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
        await run_job(kube, namespace, body)
        made = await kube.get(PODS, namespace, "job-master")
        assert made["spec"]["containers"][0]["resources"] == {
            "requests": {"cpu": "200m", "memory": "256Mi"},
            "limits": {"cpu": "500m", "memory": "512Mi"},
        }


@pytest.mark.guarantee("large-job-delays-no-other")
@pytest.mark.thorough
async def test_a_large_job_does_not_delay_a_small_one(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with (
        chaos_proxy(cluster, tmp_path) as proxy,
        operator(proxy.kubeconfig, namespace, tmp_path / "log"),
    ):
        proxy.delay = 0.5
        await kube.create(ELASTIC_JOBS, namespace, job("large", replicas=300, most=300))
        await until("the large job begins", lambda: workers(kube, namespace, "large"))
        await kube.create(ELASTIC_JOBS, namespace, job("small"))

        async def complete() -> bool:
            return len(await workers(kube, namespace, "small")) == 2

        await until("the small job has its workers", complete)
        assert len(await workers(kube, namespace, "large")) < 300
        proxy.delay = 0.0


@asynccontextmanager
async def _denied(
    kube: Kube, namespace: str, job_name: str, role: str = "worker"
) -> AsyncIterator[None]:
    """Let the API server deny the pods of one role of a job."""
    name = f"{namespace}.elasticjob.dev"
    labels = f"object.metadata.labels[?'{names.LABEL_JOB_NAME}'].orValue('')"
    of_pod = f"object.metadata.labels[?'{names.LABEL_ROLE}'].orValue('')"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    policy: Json = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [
            {
                "expression": f"{labels} != '{job_name}' || {of_pod} != '{role}'",
                "message": "barred by the house rules",
            }
        ],
    }
    chosen = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    binding: Json = {"policyName": name, "validationActions": ["Deny"], "matchResources": chosen}
    await kube.create(ADMISSION_POLICIES, None, {"metadata": {"name": name}, "spec": policy})
    await kube.create(
        ADMISSION_POLICY_BINDINGS, None, {"metadata": {"name": name}, "spec": binding}
    )
    try:
        await until("the policy is in force", lambda: _denies(kube, namespace, job_name, role))
        yield
    finally:
        await kube.delete(ADMISSION_POLICY_BINDINGS, None, name)
        await kube.delete(ADMISSION_POLICIES, None, name)


async def _denies(kube: Kube, namespace: str, job_name: str, role: str) -> bool:
    """Check it with a pod, which is deleted again."""
    labels = {names.LABEL_JOB_NAME: job_name, names.LABEL_ROLE: role}
    pod = {
        "metadata": {"name": "probe", "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "c:1"}]},
    }
    try:
        await kube.create(PODS, namespace, pod)
    except Refused:
        return True
    await kube.delete(PODS, namespace, "probe", grace_seconds=0)
    return False


def worker_spec(body: Json) -> Json:
    """Return the pod spec of a job's workers."""
    spec: Json = body["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    return spec


async def condition(kube: Kube, namespace: str, name: str, kind: str) -> Json:
    """Wait until a condition of a job holds; return it."""

    async def found() -> Json:
        status = await status_of(kube, namespace, ELASTIC_JOBS, name)
        holding = (each for each in status.get("conditions", ()) if each["status"] == "True")
        return next((each for each in holding if each["type"] == kind), {})

    return await until(f"{kind} of {name}", found)
