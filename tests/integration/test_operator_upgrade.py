"""Upgrades CRDs and operators, and applies plans a second time."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticjob_api.meta import Json
from elasticjob_kube.resources import CRDS, ELASTIC_JOBS, PODS, SCALE_PLANS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.conftest import own_cluster
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
