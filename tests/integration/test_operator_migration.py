"""Replaces members and deletes plans during their execution, against a real API server."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from elasticjob_api.meta import Json
from elasticjob_kube.errors import NotFound
from elasticjob_kube.resources import ELASTIC_JOBS, LIMIT_RANGES, PODS, SCALE_OUTS, SCALE_PLANS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.fake_kubelet import kubelet
from tests.support.operator_process import create, job, operator, phase, run_job, status_of, workers
from tests.support.wait import until

pytestmark = pytest.mark.thorough


async def test_members_migrate_to_other_resources_under_other_indices(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await run_job(kube, namespace, job())
        moves = [
            {"name": "job-worker-0", "resource": {"cpu": "200m"}},
            {"role": "worker", "index": 1, "resource": {"memory": "96Mi", "rdma/hca": "2"}},
        ]
        await create(kube, namespace, SCALE_PLANS, "m", jobName="job", migratePods=moves)
        status = await phase(
            kube, namespace, SCALE_PLANS, "m", "Succeeded", "Failed", "PartiallySucceeded"
        )
        assert status["phase"] == "Succeeded", status
        assert [
            (move["index"], move["replacement"], move["phase"]) for move in status["migrations"]
        ] == [
            (0, 2, "Done"),
            (1, 3, "Done"),
        ]
        assert status["removedPods"] == ["job-worker-0", "job-worker-1"]
        assert await workers(kube, namespace) == ["job-worker-2", "job-worker-3"]
        found = await kube.get(PODS, namespace, "job-worker-2")
        assert found["spec"]["containers"][0]["resources"]["requests"] == {
            "cpu": "200m",
            "memory": "64Mi",
        }
        found = await kube.get(PODS, namespace, "job-worker-3")
        other = found["spec"]["containers"][0]["resources"]
        assert (other["requests"]["rdma/hca"], other["limits"]["rdma/hca"]) == ("2", "2"), (
            "Kubernetes requires them to be equal"
        )
        after = await kube.get(ELASTIC_JOBS, namespace, "job")
        assert after["spec"]["replicaSpecs"]["worker"]["replicas"] == 2
        assert after["status"]["replicaStatuses"]["worker"]["indices"] == "2-3"
        by_index = after["status"]["replicaStatuses"]["worker"]["resourcesByIndex"]
        assert by_index == {"2": {"cpu": "200m"}, "3": {"memory": "96Mi", "rdma/hca": "2"}}


async def test_a_member_may_be_given_more_than_the_default_limit_of_its_namespace(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    defaults = {"type": "Container", "default": {"memory": "160Mi"}}
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await kube.create(
            LIMIT_RANGES, namespace, {"metadata": {"name": "usual"}, "spec": {"limits": [defaults]}}
        )
        await run_job(kube, namespace, job())
        assert await _memory(kube, namespace, "job-worker-0") == ("64Mi", "160Mi")
        moves = [
            {"role": "worker", "index": 0, "resource": {"memory": "256Mi"}},
            {"role": "worker", "index": 1, "resource": {"memory": "96Mi"}},
        ]
        await create(kube, namespace, SCALE_PLANS, "m", jobName="job", migratePods=moves)
        status = await phase(
            kube, namespace, SCALE_PLANS, "m", "Succeeded", "Failed", "PartiallySucceeded"
        )
        assert status["phase"] == "Succeeded", status
        assert await _memory(kube, namespace, "job-worker-2") == ("256Mi", "256Mi")
        assert await _memory(kube, namespace, "job-worker-3") == ("96Mi", "160Mi"), (
            "the namespace's own limit stays"
        )


async def _memory(kube: Kube, namespace: str, pod: str) -> tuple[str, str]:
    """Return the requests and limits of a member's container."""
    resources = (await kube.get(PODS, namespace, pod))["spec"]["containers"][0]["resources"]
    return resources["requests"]["memory"], resources["limits"]["memory"]


async def test_deleting_a_scale_out_during_its_execution_restores_the_job(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"):
        async with kubelet(kube, namespace):
            await kube.create(ELASTIC_JOBS, namespace, job())
            status = partial(status_of, kube, namespace, ELASTIC_JOBS, "job")
            await until(
                "both workers are ready", status, lambda found: found.get("workers") == "2/2"
            )
        await create(kube, namespace, SCALE_OUTS, "more", jobName="job", count=2)

        async def grown() -> bool:
            return len(await workers(kube, namespace)) == 4

        await until("the new workers, which no kubelet starts", grown)
        await kube.delete(SCALE_OUTS, namespace, "more")

        async def back() -> bool:
            found: Json = (await kube.get(ELASTIC_JOBS, namespace, "job"))["status"]
            indices = found["replicaStatuses"]["worker"]["indices"]
            return bool(
                indices == "0-1" and "currentPlan" not in found and await pods_are_deleted()
            )

        async def pods_are_deleted() -> bool:
            try:
                await kube.get(PODS, namespace, "job-worker-3")
            except NotFound:
                return True
            return False

        await until("the size of the spec", back)
        (plan,) = [
            p
            for p in (await kube.list(SCALE_PLANS, namespace))["items"]
            if p["spec"]["source"] == "Spec"
        ]
        assert plan["status"]["phase"] == "Succeeded"
        assert plan["status"]["removedPods"] == ["job-worker-2", "job-worker-3"]
