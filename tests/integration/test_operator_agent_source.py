"""Mounts the agent's image into members, on a real API server, and tells why one does not start."""

from __future__ import annotations

from pathlib import Path

import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.errors import Refused
from elasticjob_kube.resources import ELASTIC_JOBS, NAMESPACES, PODS
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.fake_kubelet import end, kubelet
from tests.support.operator_process import job, operator, phase, run_job, workers
from tests.support.wait import until

UNPRIVILEGED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
NON_ROOT = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
NO_PROGRAM = 'exec: "/elasticjob/agent/bin/elasticjob-agent": no such file or directory'


def with_source(source: str) -> Json:
    body = job()
    body["spec"]["agent"] = {"source": source}
    spec = body["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    spec["securityContext"] = NON_ROOT
    spec["containers"][0]["securityContext"] = UNPRIVILEGED
    return body


@pytest.mark.guarantee("restricted-namespaces")
async def test_a_restricted_namespace_accepts_members_that_mount_the_agents_image(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    restricted = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await kube.patch(NAMESPACES, None, namespace, restricted)
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await run_job(kube, namespace, with_source("ImageVolume"))
        spec = (await kube.get(PODS, namespace, "job-worker-0"))["spec"]
        assert spec["volumes"] == [
            {
                "name": names.AGENT,
                "image": {"reference": "master:1", "pullPolicy": "IfNotPresent"},
            }
        ]
        assert "initContainers" not in spec
        await end(kube, namespace, "job-worker-0", 128, "StartError", NO_PROGRAM)
        status = await phase(kube, namespace, ELASTIC_JOBS, "job", "Failed")
        assert NO_PROGRAM in status["message"]
        assert "submit the job again with InitContainer" in status["message"]


async def test_another_source_of_the_agent_is_for_new_pods_and_leaves_running_ones(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await run_job(kube, namespace, with_source("InitContainer"))
        before = await kube.get(PODS, namespace, "job-worker-1")
        change = {"spec": {"agent": {"source": "ImageVolume"}}}
        await kube.patch(ELASTIC_JOBS, namespace, "job", change)
        await end(kube, namespace, "job-worker-0", 1)

        async def new_pod() -> Json:
            for name in await workers(kube, namespace):
                spec: Json = (await kube.get(PODS, namespace, name))["spec"]
                if "initContainers" not in spec:
                    return spec
            return {}

        spec = await until("the replacement mounts the image", new_pod)
        assert any("image" in volume for volume in spec["volumes"])
        after = await kube.get(PODS, namespace, "job-worker-1")
        assert after["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.guarantee("bad-input-is-refused")
async def test_an_unknown_source_of_the_agent_is_rejected_with_the_known_ones(
    kube: Kube, namespace: str
) -> None:
    with pytest.raises(Refused) as refusal:
        await kube.create(ELASTIC_JOBS, namespace, with_source("Copy"))
    message = refusal.value.message
    assert 'spec.agent.source: Unsupported value: "Copy"' in message
    assert '"ImageVolume"' in message
