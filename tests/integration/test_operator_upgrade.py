"""Upgrades CRDs and operators, also from earlier CRDs, and applies plans a second time."""

from __future__ import annotations

import asyncio
import copy
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticjob_api.meta import Json
from elasticjob_kube.errors import NotFound, Refused
from elasticjob_kube.resources import (
    CRDS,
    ELASTIC_JOBS,
    PODS,
    SCALE_INS,
    SCALE_OUTS,
    SCALE_PLANS,
)
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster
from elasticjob_localcluster.crds import apply_crds

from tests.conftest import REPOSITORY, own_cluster
from tests.support.fake_kubelet import kubelet
from tests.support.operator_process import (
    has_logged,
    job,
    manifest,
    operator,
    phase,
    run_job,
    workers,
)
from tests.support.wait import until

pytestmark = pytest.mark.thorough

EARLIER = ("af76ef11", "9aea0cb6", "5f6cd71b", "b813bee2")
"""Commits with definitions from which an upgrade is tried, from the first ones on."""
TEMPLATE: Json = {
    "spec": {"containers": [{"name": "train", "image": "train:1", "command": ["train"]}]}
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a control plane of its own, because the tests change the definitions."""
    with own_cluster(tmp_path_factory, control_plane_only=True) as upgraded:
        yield upgraded


@pytest.mark.guarantee("upgrade-while-jobs-run")
async def test_another_operator_and_changed_definitions_restart_no_pod(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "old"), kubelet(kube, namespace):
        await run_job(kube, namespace, job())
        await until("2 workers ready", lambda: _all_ready(kube, namespace))
    before = await _pods(kube, namespace)
    definition = await kube.get(CRDS, None, "elasticjobs.elasticjob.dev")
    newer = copy.deepcopy(definition["spec"]["versions"])
    schema = newer[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    schema["properties"]["ofAnotherVersion"] = {"type": "string", "default": "new"}
    await kube.patch(CRDS, None, "elasticjobs.elasticjob.dev", {"spec": {"versions": newer}})
    try:
        await until("the new definition is served", lambda: _has_new_default(kube, namespace))
        async with (
            operator(cluster.kubeconfig, namespace, tmp_path / "new"),
            kubelet(kube, namespace),
        ):
            await until(
                "the new operator leads", lambda: has_logged(tmp_path / "new", "leading as")
            )
            more = manifest(SCALE_PLANS, "more", jobName="job", createPods=[{"role": "worker"}])
            await kube.create(SCALE_PLANS, namespace, more)
            await phase(kube, namespace, SCALE_PLANS, "more", "Succeeded")
        after = await _pods(kube, namespace)
        assert {uid: after.get(uid) for uid in before} == before
        assert len(after) == len(before) + 1
    finally:
        await kube.patch(
            CRDS,
            None,
            "elasticjobs.elasticjob.dev",
            {"spec": {"versions": definition["spec"]["versions"]}},
        )


@pytest.mark.guarantee("upgrade-while-jobs-run")
@pytest.mark.parametrize("commit", EARLIER)
async def test_objects_of_earlier_definitions_can_be_scaled_released_and_deleted(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path, commit: str
) -> None:
    await apply_crds(cluster.kubeconfig, _earlier_definitions(commit, tmp_path))
    # The present definitions refuse a template without a container.
    unfit = manifest(ELASTIC_JOBS, "unfit", **_spec({}))
    objects = [
        (ELASTIC_JOBS, unfit),
        (ELASTIC_JOBS, manifest(ELASTIC_JOBS, "old", **_spec(TEMPLATE))),
        (SCALE_PLANS, manifest(SCALE_PLANS, "old", jobName="old", createPods=[{}])),
        (SCALE_OUTS, manifest(SCALE_OUTS, "old", jobName="old", count=1)),
        (SCALE_INS, manifest(SCALE_INS, "old", jobName="old", podNames=["old-worker-1"])),
    ]
    try:
        await until("they are enforced", lambda: _accepts(kube, namespace, unfit))
        for resource, body in objects:
            body["metadata"]["finalizers"] = ["example.com/kept"]
            await kube.create(resource, namespace, body)
    finally:
        await apply_crds(cluster.kubeconfig, REPOSITORY / "crds")
    await until("the present ones are enforced", lambda: _refuses(kube, namespace, unfit))
    scale = {"spec": {"replicas": 3}}
    await kube.patch(ELASTIC_JOBS, namespace, "old", scale, subresource="scale")
    stored = await kube.get(ELASTIC_JOBS, namespace, "old")
    assert stored["spec"]["replicaSpecs"]["worker"]["replicas"] == 3
    for resource, body in objects:
        name = body["metadata"]["name"]
        await kube.delete(resource, namespace, name)
        await kube.patch(resource, namespace, name, {"metadata": {"finalizers": None}})
        with pytest.raises(NotFound):
            await kube.get(resource, namespace, name)


def _earlier_definitions(commit: str, folder: Path) -> Path:
    """Return the folder with the definitions of a commit."""
    archive = subprocess.run(
        ["git", "-C", REPOSITORY, "archive", commit, "crds"], capture_output=True, check=False
    )
    if archive.returncode != 0:
        pytest.skip(f"this is not a clone with commit {commit}: {archive.stderr.decode()}")
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return folder / "crds"


def _spec(template: Json) -> Json:
    worker = {"replicas": 2, "template": template}
    return {"framework": "custom", "replicaSpecs": {"worker": worker}}


async def _accepts(kube: Kube, namespace: str, job: Json) -> bool:
    try:
        await kube.create(ELASTIC_JOBS, namespace, job, dry_run=True)
    except Refused:
        return False
    return True


async def _refuses(kube: Kube, namespace: str, job: Json) -> bool:
    fresh = {**job, "metadata": {"name": "fresh"}}
    return not await _accepts(kube, namespace, fresh)


@pytest.mark.guarantee("plan-runs-once-in-order", "repeated-or-stale-plans")
async def test_a_plan_applied_twice_is_executed_once_and_is_immutable(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await run_job(kube, namespace, job())
        plan = manifest(
            SCALE_PLANS, "more", jobName="job", createPods=[{"role": "worker"}, {"role": "worker"}]
        )
        assert "created" in await _apply(cluster, namespace, plan)
        assert "invalid" not in await _apply(cluster, namespace, plan)
        status = await phase(kube, namespace, SCALE_PLANS, "more", "Succeeded")
        assert "invalid" not in await _apply(cluster, namespace, plan)
        plan["spec"]["createPods"].append({"role": "worker"})
        assert "spec is immutable; create another ScalePlan" in await _apply(
            cluster, namespace, plan
        )
        # A later request is executed after it. If the plan were executed again, that would happen
        # first.
        later = manifest(SCALE_PLANS, "later", jobName="job", createPods=[{"role": "worker"}])
        await kube.create(SCALE_PLANS, namespace, later)
        await phase(kube, namespace, SCALE_PLANS, "later", "Succeeded")
        assert len(await workers(kube, namespace)) == 5
        assert (await kube.get(SCALE_PLANS, namespace, "more"))["status"] == status


async def _apply(cluster: Cluster, namespace: str, body: Json) -> str:
    """Return kubectl's output."""
    command = [
        cluster.bin / "kubectl",
        "--kubeconfig",
        cluster.kubeconfig,
        "-n",
        namespace,
        "apply",
        "-f",
        "-",
    ]
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate(json.dumps(body).encode())
    return said.decode()


async def _pods(kube: Kube, namespace: str) -> dict[str, tuple[str, Json]]:
    """Return name and spec of every pod that stays, by UID."""
    pods = (await kube.list(PODS, namespace))["items"]
    return {
        pod["metadata"]["uid"]: (pod["metadata"]["name"], pod["spec"])
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
    }


async def _all_ready(kube: Kube, namespace: str) -> bool:
    return bool((await kube.get(ELASTIC_JOBS, namespace, "job"))["status"]["workers"] == "2/2")


async def _has_new_default(kube: Kube, namespace: str) -> bool:
    return "ofAnotherVersion" in (await kube.get(ELASTIC_JOBS, namespace, "job"))["spec"]
