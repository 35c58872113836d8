"""Runs gangs of Kubernetes' own scheduler, with its feature gate, on the real scheduler.

The node and its kubelet are played.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from elasticjob_api import names
from elasticjob_api.meta import Json
from elasticjob_client.access import Access
from elasticjob_client.diagnosis import diagnose
from elasticjob_kube.resources import ELASTIC_JOBS, NATIVE_POD_GROUPS, PODS
from elasticjob_kube.session import Kube, connect
from elasticjob_localcluster import cluster as clusters

from tests.conftest import own_cluster
from tests.support.deploy_tools import DEPLOY, SYSTEM, Tools
from tests.support.fake_kubelet import end, kubelet
from tests.support.operator_process import job, operator, phase, status_of
from tests.support.service_accounts import kubeconfig_of
from tests.support.wait import until

pytestmark = pytest.mark.thorough

_RIGHTS = re.compile(r"Namespace|ServiceAccount|Lease|(Cluster)?Role(Binding)?")
_GATE = "--feature-gates=GenericWorkload=true"
_FLAGS = {
    "kube-apiserver": f"{_GATE} --runtime-config=scheduling.k8s.io/v1beta1=true",
    "kube-controller-manager": _GATE,
    "kube-scheduler": _GATE,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    with own_cluster(tmp_path_factory, control_plane_only=True, flags=_FLAGS) as gated:
        yield gated


def gang_job(replicas: int, **policy: Any) -> Json:
    """Return a job that needs all of its workers; each of its pods requests 100m CPU."""
    body = job(
        replicas=replicas,
        master={"resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}},
        runPolicy={"schedulingPolicy": {"gang": "native"}, **policy},
    )
    body["spec"]["replicaSpecs"]["worker"]["minReplicas"] = replicas
    return body


async def placed(kube: Kube, namespace: str) -> dict[str, bool]:
    """Return whether each pod that has not ended is on a node."""
    found = (await kube.list(PODS, namespace))["items"]
    return {
        pod["metadata"]["name"]: "nodeName" in pod["spec"]
        for pod in found
        if pod["status"]["phase"] in ("Pending", "Running")
    }


async def least(kube: Kube, namespace: str) -> int:
    group = await kube.get(NATIVE_POD_GROUPS, namespace, "job")
    return int(group["spec"]["schedulingPolicy"]["gang"]["minCount"])


async def with_members(kube: Kube, namespace: str, workers: str) -> Json:
    return await until(
        f"{workers} workers",
        partial(status_of, kube, namespace, ELASTIC_JOBS, "job"),
        lambda status: status.get("phase") == "Running" and status.get("workers") == workers,
    )


async def gang_findings(cluster: clusters.Cluster, namespace: str) -> list[str]:
    """Return what the doctor says of gangs."""
    found = await diagnose(Access(cluster.kubeconfig, None, namespace))
    return [each.message for each in found if each.check == "gangs"]


async def test_a_native_gang_starts_whole_or_not_at_all(
    cluster: clusters.Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    container = {
        "name": "c",
        "image": "i",
        "resources": {"requests": {"cpu": "200m", "memory": "1Mi"}},
    }
    other = {"metadata": {"name": "other"}, "spec": {"containers": [container]}}
    async with (
        kubelet(kube, namespace, node=namespace, cpu="500m"),
        operator(cluster.kubeconfig, namespace, tmp_path / "log"),
    ):
        await kube.create(PODS, namespace, other)
        await until(
            "the other pod has its node",
            partial(placed, kube, namespace),
            lambda found: all(found.values()),
        )
        await kube.create(ELASTIC_JOBS, namespace, gang_job(3))
        status = await until(
            "the scheduler's reason",
            partial(status_of, kube, namespace, ELASTIC_JOBS, "job"),
            lambda status: "minCount (4)" in status.get("message", ""),
        )
        assert status["phase"] != "Running"
        pods = await placed(kube, namespace)
        assert (len(pods), [name for name, has_node in pods.items() if has_node]) == (5, ["other"])
        await kube.delete(PODS, namespace, "other", grace_seconds=0)
        await with_members(kube, namespace, "3/3")
        assert await gang_findings(cluster, namespace) == []


@pytest.mark.guarantee("native-gang")
async def test_a_member_that_is_replaced_is_not_held_for_those_that_have_ended(
    cluster: clusters.Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    async with (
        kubelet(kube, namespace, node=namespace, cpu="1"),
        operator(cluster.kubeconfig, namespace, tmp_path / "log"),
    ):
        await kube.create(ELASTIC_JOBS, namespace, gang_job(3))
        await with_members(kube, namespace, "3/3")
        assert await least(kube, namespace) == 4
        await end(kube, namespace, "job-worker-2", 137)
        await with_members(kube, namespace, "3/3")
        await end(kube, namespace, "job-worker-0", 0)
        await until("one less", partial(least, kube, namespace), lambda count: count == 3)
        await end(kube, namespace, "job-worker-1", 137)
        await with_members(kube, namespace, "2/3")
        assert all((await placed(kube, namespace)).values())


async def test_a_job_that_waits_for_all_members_has_all_of_them_in_its_gang_until_it_runs(
    cluster: clusters.Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    body = gang_job(3, startPolicy="AllReady")
    body["spec"]["replicaSpecs"]["worker"]["minReplicas"] = 1
    async with operator(cluster.kubeconfig, namespace, tmp_path / "log"):
        await kube.create(ELASTIC_JOBS, namespace, body)
        await phase(kube, namespace, ELASTIC_JOBS, "job", "Starting")
        assert await least(kube, namespace) == 4
        async with kubelet(kube, namespace, node=namespace, cpu="1"):
            await with_members(kube, namespace, "3/3")
            await until("minReplicas", partial(least, kube, namespace), lambda count: count == 2)


@pytest.mark.guarantee("native-gang")
async def test_the_installed_account_of_the_operator_may_do_all_that_a_gang_needs(
    cluster: clusters.Cluster, kube: Kube, namespace: str, tmp_path: Path
) -> None:
    tools = Tools(cluster)
    installed = yaml.safe_load_all(tools.kubectl("kustomize", str(DEPLOY / "base")))
    rights = [each for each in installed if _RIGHTS.fullmatch(each["kind"])]
    given = yaml.safe_dump_all(rights)
    tools.kubectl("apply", "--server-side", "--filename=-", given=given)
    account = await kubeconfig_of(names.OPERATOR, cluster, kube, SYSTEM, tmp_path)
    log = tmp_path / "log"
    async with (
        kubelet(kube, namespace, node=namespace, cpu="1"),
        operator(account, None, log, f"--lease-namespace={SYSTEM}"),
    ):
        await kube.create(ELASTIC_JOBS, namespace, gang_job(3))
        await with_members(kube, namespace, "3/3")
        await end(kube, namespace, "job-worker-0", 0)
        await until("one less", partial(least, kube, namespace), lambda count: count == 3)
    assert "podgroups" not in log.read_text()


@pytest.fixture
def ungated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    """Run a cluster whose scheduler alone lacks the gate."""
    flags = {name: flag for name, flag in _FLAGS.items() if name != "kube-scheduler"}
    with own_cluster(tmp_path_factory, control_plane_only=True, flags=flags) as made:
        yield made


async def test_the_doctor_names_a_scheduler_that_ignores_gangs(
    ungated: clusters.Cluster, tmp_path: Path
) -> None:
    namespace = "default"
    async with (
        connect(user_agent="tests", kubeconfig=ungated.kubeconfig) as kube,
        kubelet(kube, namespace, node=namespace, cpu="1"),
        operator(ungated.kubeconfig, namespace, tmp_path / "log"),
    ):
        await kube.create(ELASTIC_JOBS, namespace, gang_job(2))
        await with_members(kube, namespace, "2/2")
        (message,) = await gang_findings(ungated, namespace)
    assert message == "the scheduler ignores the native gang of job job"
