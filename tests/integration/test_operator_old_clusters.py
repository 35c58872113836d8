"""Runs on old clusters: before 1.33 no running pod is resized, before 1.35 no image is mounted.

The embedded API server is configured as a 1.34 without in-place resize, the oldest possible. To the
operator this equals 1.30 to 1.32: the subresource does not exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticjob_kube.errors import NotFound
from elasticjob_kube.resources import ELASTIC_JOBS, PODS, SCALE_PLANS
from elasticjob_kube.session import Kube
from elasticjob_localcluster import cluster as clusters

from tests.conftest import own_cluster
from tests.support.fake_kubelet import end, kubelet
from tests.support.operator_process import create, job, operator, phase, run_job, workers

pytestmark = pytest.mark.thorough

_OLD = "--emulated-version=1.34 --feature-gates=InPlacePodVerticalScaling=false"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    with own_cluster(
        tmp_path_factory, control_plane_only=True, flags={"kube-apiserver": _OLD}
    ) as old:
        yield old


@pytest.mark.guarantee("no-in-place-resize")
async def test_without_in_place_resize_members_are_replaced_one_by_one_with_the_reason(
    cluster: clusters.Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await run_job(kube, namespace, job())
        with pytest.raises(NotFound):
            await kube.patch(PODS, namespace, "job-worker-0", {"spec": {}}, subresource="resize")
        wish = {"worker": {"resource": {"cpu": "200m"}}}
        await create(kube, namespace, SCALE_PLANS, "p", jobName="job", replicaResourceSpecs=wish)
        status = await phase(
            kube, namespace, SCALE_PLANS, "p", "Succeeded", "Failed", "PartiallySucceeded"
        )
        assert status["phase"] == "Succeeded", status
        reasons = [move["message"] for move in status["migrations"]]
        assert len(reasons) == 2
        assert all(
            "in-place resize needs Kubernetes 1.33 or later" in reason for reason in reasons
        ), status
        for name in await workers(kube, namespace):
            found = await kube.get(PODS, namespace, name)
            assert found["spec"]["containers"][0]["resources"]["requests"] == {
                "cpu": "200m",
                "memory": "64Mi",
            }


@pytest.mark.guarantee("pods-that-cannot-start")
async def test_a_job_whose_image_volume_the_api_server_drops_fails_and_says_what_to_set(
    cluster: clusters.Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        body = job()
        body["spec"]["agent"] = {"source": "ImageVolume"}
        await run_job(kube, namespace, body)
        found = await kube.get(PODS, namespace, "job-worker-0")
        assert not found["spec"].get("volumes")
        missing = found["spec"]["containers"][0]["command"][0]
        text = f'exec: "{missing}": no such file or directory'
        await end(kube, namespace, "job-worker-0", 128, "StartError", text)
        status = await phase(kube, namespace, ELASTIC_JOBS, "job", "Failed")
        assert "needs Kubernetes 1.35 or newer" in status["message"]
        assert "submit the job again with InitContainer" in status["message"]
