"""Runs the operator's process against a real API server; kubelets and agents are fake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    ELASTIC_JOBS,
    LEASES,
    PODS,
    RESOURCE_QUOTAS,
    ROLES,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
    SECRETS,
    SERVICES,
)
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster
from elasticjob_localcluster.controlplane.ports import free_port

from tests.support.fake_kubelet import end, kubelet
from tests.support.operator_process import (
    create,
    exists,
    job,
    manifest,
    operator,
    phase,
    run_job,
    status_of,
    workers,
)
from tests.support.wait import until


async def test_a_job_becomes_master_and_workers_with_all_their_objects(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await run_job(kube, namespace, job())
        created = await kube.get(ELASTIC_JOBS, namespace, "job")
        assert await workers(kube, namespace) == ["job-worker-0", "job-worker-1"]

        async def address() -> str:
            status = (await kube.get(ELASTIC_JOBS, namespace, "job"))["status"]
            return str(status.get("masterAddress", ""))

        # The workers may be ready before the master is.
        assert (await until("the master's address", address)).endswith(f":{names.GRPC_PORT}")
        pod = await kube.get(PODS, namespace, "job-worker-1")
        (owner,) = pod["metadata"]["ownerReferences"]
        assert owner["uid"] == created["metadata"]["uid"]
        container = pod["spec"]["containers"][0]
        assert container["args"] == ["train", "--fast"]
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("worker-1", "job")
        secret = await kube.get(SECRETS, namespace, "job-master")
        assert set(secret["data"]) == {
            names.SECRET_TOKEN,
            names.SECRET_CA,
            names.SECRET_CERT,
            names.SECRET_KEY,
            names.SECRET_PEER,
        }


@pytest.mark.guarantee("one-job-delays-no-other")
async def test_the_metrics_name_a_job_with_its_decisions_until_it_is_deleted(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    port = free_port()

    async def metrics() -> str:
        async with (
            aiohttp.ClientSession() as http,
            http.get(f"http://127.0.0.1:{port}/metrics") as response,
        ):
            return await response.text()

    async def is_named() -> bool:
        return series in await metrics()

    async def is_not_named() -> bool:
        return not await is_named()

    series = f'elasticjob_decision_seconds_count{{job_name="job",job_namespace="{namespace}"}}'
    http = ("--http-port", str(port))
    async with (
        operator(cluster.kubeconfig, namespace, tmp_path / "log", *http),
        kubelet(kube, namespace),
    ):
        await run_job(kube, namespace, job())
        assert await is_named()
        await kube.delete(ELASTIC_JOBS, namespace, "job")
        await until("no metric of the job", is_not_named)


async def test_every_way_to_change_the_size_works_and_the_spec_follows(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await run_job(kube, namespace, job())

        await create(kube, namespace, SCALE_OUTS, "more", jobName="job", count=2)
        await phase(kube, namespace, SCALE_OUTS, "more", "ScaleSucceeded")
        assert (await workers(kube, namespace))[-1] == "job-worker-3"

        await create(kube, namespace, SCALE_INS, "less", jobName="job", podNames=["job-worker-1"])
        status = await phase(kube, namespace, SCALE_INS, "less", "ScaleSucceeded")
        assert status["pods"] == ["job-worker-1"]
        plan = await kube.get(SCALE_PLANS, namespace, status["plan"])
        assert "forcedPods" not in plan["status"]

        scale = {"spec": {"replicas": 5}}
        await kube.patch(ELASTIC_JOBS, namespace, "job", scale, subresource="scale")
        await until("5 workers", lambda: _count(kube, namespace, 5))

        edit = {"spec": {"replicaSpecs": {"worker": {"replicas": 1}}}}
        await kube.patch(ELASTIC_JOBS, namespace, "job", edit)
        await until("1 worker", lambda: _count(kube, namespace, 1))

        resize = {"worker": {"replicas": 2, "resource": {"cpu": "200m"}}}
        body = manifest(SCALE_PLANS, "resize", jobName="job", replicaResourceSpecs=resize)
        await kube.create(SCALE_PLANS, namespace, body)
        status = await phase(
            kube, namespace, SCALE_PLANS, "resize", "Succeeded", "Failed", "PartiallySucceeded"
        )
        assert status["phase"] == "Succeeded", status
        for name in await workers(kube, namespace):
            pod = await kube.get(PODS, namespace, name)
            assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "200m"
        spec = (await kube.get(ELASTIC_JOBS, namespace, "job"))["spec"]
        assert spec["replicaSpecs"]["worker"]["replicas"] == 2


async def test_pods_rejected_by_a_quota_are_reported_and_retried(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    await kube.create(
        RESOURCE_QUOTAS, namespace, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}}
    )
    await until("quota counted", lambda: _quota_is_counted(kube, namespace))
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await kube.create(ELASTIC_JOBS, namespace, job(replicas=3))
        await until(
            "the status says why",
            lambda: status_of(kube, namespace, ELASTIC_JOBS, "job"),
            lambda status: "exceeded quota" in status.get("message", ""),
        )
        await kube.delete(RESOURCE_QUOTAS, namespace, "q")
        await until("all there", lambda: _count(kube, namespace, 3), seconds=60)


@pytest.mark.guarantee(
    "worker-deleted-evicted-preempted",
    "failed-pod-replaced",
    "master-deleted-node-lost",
    played=True,
)
async def test_lost_pods_and_the_master_are_replaced_under_new_names(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await run_job(kube, namespace, job())
        await kube.delete(PODS, namespace, "job-worker-0")
        await kube.delete(PODS, namespace, "job-master")
        await until(
            "replaced", lambda: _names_are(kube, namespace, ["job-worker-0-1", "job-worker-1"])
        )
        await until("master", lambda: exists(kube, PODS, namespace, "job-master-1"))
        await end(kube, namespace, "job-worker-1", 1, message="out of luck")
        names_then = ["job-worker-0-1", "job-worker-1", "job-worker-1-2"]
        await until(
            "restarted, the failed pod is still there",
            lambda: _names_are(kube, namespace, names_then),
        )
        status = (await kube.get(ELASTIC_JOBS, namespace, "job"))["status"]
        assert status["replicaStatuses"]["worker"]["restartsByIndex"] == {"1": 1}
        await end(kube, namespace, "job-worker-0-1", 127, message="no such file: train")
        status = await phase(kube, namespace, ELASTIC_JOBS, "job", "Failed")
        assert "no such file: train" in status["message"]


@pytest.mark.guarantee("no-writes-at-rest")
async def test_an_idle_operator_writes_nothing(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    # Pods are left out: the scheduler updates those for which it has no node.
    kinds = (ELASTIC_JOBS, SCALE_PLANS, SCALE_OUTS, SERVICES, SECRETS, CONFIG_MAPS, ROLES)

    async def versions() -> list[str]:
        return [
            item["metadata"]["resourceVersion"]
            for kind in kinds
            for item in (await kube.list(kind, namespace))["items"]
        ]

    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"):
        async with kubelet(kube, namespace):
            await kube.create(ELASTIC_JOBS, namespace, job())
            await create(kube, namespace, SCALE_OUTS, "more", jobName="job", count=1)
            await phase(kube, namespace, SCALE_OUTS, "more", "ScaleSucceeded")
            await until("all is done", lambda: _is_at_rest(kube, namespace, "3/3"))
        before = await versions()
        lease = (await kube.get(LEASES, namespace, names.OPERATOR))["metadata"]

        async def renewed() -> bool:
            return bool((await kube.get(LEASES, namespace, names.OPERATOR))["metadata"] != lease)

        await until("the operator is alive and renews its lease", renewed)
        assert await versions() == before
        assert await workers(kube, namespace) == ["job-worker-0", "job-worker-1", "job-worker-2"]


async def _count(kube: Kube, namespace: str, number: int) -> bool:
    return len(await workers(kube, namespace)) == number


async def _names_are(kube: Kube, namespace: str, expected: list[str]) -> bool:
    return await workers(kube, namespace) == expected


async def _is_at_rest(kube: Kube, namespace: str, expected: str) -> bool:
    """Return whether the status is complete: members, master, plan and last change."""
    job: Json = await kube.get(ELASTIC_JOBS, namespace, "job")
    status = job["status"]
    is_done = (
        status["observedGeneration"] == job["metadata"]["generation"]
        and "currentPlan" not in status
    )
    return (
        is_done
        and (status["workers"], status["phase"]) == (expected, "Running")
        and "masterAddress" in status
    )


async def _quota_is_counted(kube: Kube, namespace: str) -> Any:
    return (await kube.get(RESOURCE_QUOTAS, namespace, "q")).get("status", {}).get("used")
