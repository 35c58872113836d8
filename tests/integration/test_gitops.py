"""Keeps jobs in Git.

Checks how kstatus (as in Flux) and Argo CD judge jobs, and what re-applying a manifest changes.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_OUTS, SCALE_PLANS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.fake_kubelet import end, kubelet
from tests.support.gitops import argo_cd_health, build_kstatus, kstatus
from tests.support.operator_process import create, job, operator, phase, workers
from tests.support.programs import kubectl
from tests.support.wait import until


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_kstatus(tmp_path_factory.mktemp("kstatus"))


@pytest.mark.thorough
async def test_kstatus_and_argo_cd_report_the_jobs_state(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path, program: Path
) -> None:
    async def seen(name: str) -> tuple[str, str]:
        found = await kube.get(ELASTIC_JOBS, namespace, name)
        kind = {"apiVersion": ELASTIC_JOBS.api_version, "kind": ELASTIC_JOBS.kind}
        return kstatus(program, {**kind, **found}), argo_cd_health(found)

    async def becomes(name: str, of_kstatus: str, of_argo_cd: str) -> None:
        wanted = (of_kstatus, of_argo_cd)
        await until(f"{name} is {wanted}", partial(seen, name), lambda found: found == wanted)

    await kube.create(ELASTIC_JOBS, namespace, job())
    assert await seen("job") == ("InProgress", "Progressing"), "no operator has seen it yet"
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"):
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Starting")
        assert await seen("job") == ("InProgress", "Progressing"), "its pods do not run yet"
        async with kubelet(kube, namespace):
            await becomes("job", "Current", "Healthy")
            await set_suspend(kube, namespace, True)
            await becomes("job", "Current", "Suspended")
            await set_suspend(kube, namespace, False)
            await becomes("job", "Current", "Healthy")
            both = await until(
                "both workers", partial(workers, kube, namespace), lambda names: len(names) == 2
            )
            for name in both:
                await end(kube, namespace, name, 0)
            await phase(kube, namespace, ELASTIC_JOBS, "job", "Succeeded")
            assert await seen("job") == ("Current", "Healthy")
            failing = job("failing", replicas=1)
            failing["spec"]["replicaSpecs"]["worker"]["restartLimit"] = 0
            await kube.create(ELASTIC_JOBS, namespace, failing)
            await becomes("failing", "Current", "Healthy")
            (name,) = await workers(kube, namespace, "failing")
            await end(kube, namespace, name, 1)
            await becomes("failing", "Failed", "Degraded")


async def set_suspend(kube: Kube, namespace: str, value: bool) -> None:
    await kube.patch(ELASTIC_JOBS, namespace, "job", {"spec": {"runPolicy": {"suspend": value}}})


@pytest.mark.parametrize(
    "way", [("apply",), ("apply", "--server-side"), ("apply", "--server-side", "--force-conflicts")]
)
async def test_applying_a_manifest_without_replicas_again_keeps_the_size(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path, way: tuple[str, ...]
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(without_replicas()))
    apply_again = partial(apply, cluster, namespace, path, *way)
    apply_again()
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Running")
        await until(
            "both workers", partial(workers, kube, namespace), lambda names: len(names) == 2
        )
        await create(kube, namespace, SCALE_OUTS, "more", jobName="job", count=2)
        await phase(kube, namespace, SCALE_OUTS, "more", "ScaleSucceeded")
        await until(
            "the size is written back", partial(replicas, kube, namespace), lambda size: size == 4
        )
        apply_again()
        edited = without_replicas()
        edited["spec"]["runPolicy"] = {"backoffLimit": 7}
        path.write_text(yaml.safe_dump(edited))
        apply_again()
        generation = (await kube.get(ELASTIC_JOBS, namespace, "job"))["metadata"]["generation"]

        async def seen() -> bool:
            status = (await kube.get(ELASTIC_JOBS, namespace, "job"))["status"]
            return bool(status["observedGeneration"] == generation)

        await until("the operator has seen the edit", seen)
        assert len(await workers(kube, namespace)) == await replicas(kube, namespace) == 4
        plans = (await kube.list(SCALE_PLANS, namespace))["items"]
        assert [plan["spec"]["source"] for plan in plans] == ["ScaleOut"]


async def test_removing_replicas_from_a_manifest_changes_no_size(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job(replicas=3)))
    apply(cluster, namespace, path)
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Running")
        path.write_text(yaml.safe_dump(without_replicas()))
        apply(cluster, namespace, path)
        await until(
            "the field is written again", partial(replicas, kube, namespace), lambda size: size == 3
        )
        assert len(await workers(kube, namespace)) == 3
        assert (await kube.list(SCALE_PLANS, namespace))["items"] == []


async def test_a_server_side_apply_of_replicas_conflicts_with_the_operator(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job(replicas=2)))
    on_the_server = ("apply", "--server-side")
    apply(cluster, namespace, path, *on_the_server)
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Running")
        await create(kube, namespace, SCALE_OUTS, "more", jobName="job", count=2)
        await until(
            "the size is written back", partial(replicas, kube, namespace), lambda size: size == 4
        )
        refused = kubectl(cluster, namespace, *on_the_server, "-f", str(path))
        assert refused.returncode != 0
        assert "spec.replicaSpecs.worker.replicas" in refused.stderr
        assert "elasticjob-operator" in refused.stderr
        assert await replicas(kube, namespace) == 4


def without_replicas() -> Json:
    made_job = job()
    worker = made_job["spec"]["replicaSpecs"]["worker"]
    del worker["replicas"]
    worker["minReplicas"] = 2
    return made_job


async def replicas(kube: Kube, namespace: str) -> Any:
    found = await kube.get(ELASTIC_JOBS, namespace, "job")
    return found["spec"]["replicaSpecs"]["worker"].get("replicas")


def apply(cluster: Cluster, namespace: str, path: Path, *way: str) -> None:
    """Apply a manifest, which succeeds."""
    done = kubectl(cluster, namespace, *(way or ("apply",)), "-f", str(path))
    assert done.returncode == 0, done.stderr
