"""Deletes or edits the objects around a running job's pods on a real API server."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_kube.errors import KubeError, NotFound
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    NETWORK_POLICIES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from elasticjob_kube.session import Kube
from elasticjob_localcluster.cluster import Cluster

from tests.support.fake_kubelet import kubelet
from tests.support.operator_process import exists, job, operator, run_job, workers
from tests.support.wait import until

pytestmark = pytest.mark.thorough

MASTER = names.master_service("job")
WATCHED = [
    (SERVICES, MASTER),
    (SERVICES, "job"),
    (SERVICE_ACCOUNTS, MASTER),
    (ROLES, MASTER),
    (ROLE_BINDINGS, MASTER),
    (NETWORK_POLICIES, "job"),
]
POLICY = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]}


async def get(kube: Kube, namespace: str, resource: Resource, name: str) -> Json:
    """Return an object; empty if it does not exist."""
    try:
        return await kube.get(resource, namespace, name)
    except NotFound:
        return {}


@pytest.mark.guarantee("infrastructure-deleted-or-changed", "connections-from-other-pods")
async def test_objects_deleted_or_edited_while_a_job_runs_are_restored(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with (
        operator(cluster.kubeconfig, namespace, tmp_path / "log", "--network-policies"),
        kubelet(kube, namespace),
    ):
        await run_job(kube, namespace, job())
        before = {key: await kube.get(key[0], namespace, key[1]) for key in WATCHED}
        for resource, name in WATCHED:
            await kube.delete(resource, namespace, name)
        await kube.delete(PODS, namespace, "job-worker-0")
        for resource, name in WATCHED:
            again = await until(
                f"{resource.kind} {name}", partial(get, kube, namespace, resource, name)
            )
            assert again["metadata"]["uid"] != before[resource, name]["metadata"]["uid"]
            assert (
                again["metadata"]["ownerReferences"]
                == before[resource, name]["metadata"]["ownerReferences"]
            )
            if resource == SERVICES:
                address = before[resource, name]["spec"]["clusterIP"]
                assert again["spec"]["clusterIP"] == address, "running containers know this one"
        await until(
            "a new worker",
            partial(workers, kube, namespace),
            lambda found: "job-worker-0-1" in found,
        )

        added = {"metadata": {"labels": {"theirs": "1"}, "annotations": {"theirs": "1"}}}
        await kube.patch(SERVICES, namespace, MASTER, added)
        await kube.patch(
            NETWORK_POLICIES,
            namespace,
            "job",
            {"spec": POLICY, "metadata": {"labels": {"theirs": "1"}}},
        )
        policy = await until(
            "the policy is corrected",
            partial(get, kube, namespace, NETWORK_POLICIES, "job"),
            lambda found: found["spec"] == before[NETWORK_POLICIES, "job"]["spec"],
        )
        assert policy["metadata"]["labels"]["theirs"] == "1", "what others add is theirs"
        assert (await kube.get(SERVICES, namespace, MASTER))["metadata"]["labels"]["theirs"] == "1"


async def test_objects_that_cannot_be_listed_are_restored_within_a_minute(
    cluster: Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"), kubelet(kube, namespace):
        await run_job(kube, namespace, job())
        secret = await kube.get(SECRETS, namespace, MASTER)
        with pytest.raises(KubeError, match="immutable"):
            await kube.patch(SECRETS, namespace, MASTER, {"data": {"token": "eHh4"}})
        await kube.delete(SECRETS, namespace, MASTER)
        await kube.delete(CONFIG_MAPS, namespace, names.state_config_map("job"))
        again = await until("the Secret", partial(get, kube, namespace, SECRETS, MASTER))
        assert again["data"] == secret["data"]
        await until(
            "the ConfigMap",
            partial(exists, kube, CONFIG_MAPS, namespace, names.state_config_map("job")),
        )
