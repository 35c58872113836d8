"""A job that does not start says why its pods wait, also if a volume cannot be mounted."""

from __future__ import annotations

import pytest
from elasticjob_api.meta import Json
from elasticjob_kube.resources import ELASTIC_JOBS, PODS

from tests.support.job_cluster import new_cluster, pod_names
from tests.support.simulator.cluster import Cluster

FILES = {"name": "files", "configMap": {"name": "job-files"}}
TOKEN = {"name": "token", "secret": {"secretName": "hub", "optional": False}}
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
NEEDLESS = [
    {"name": "more", "configMap": {"name": "more", "optional": True}},
    {"name": "e", "emptyDir": {}},
]
ADVICE = "create what does not exist, or delete the job and submit it again"

pytestmark = pytest.mark.guarantee("pods-that-cannot-start")


async def starting(*volumes: Json, replicas: int = 1) -> Cluster:
    """Return a cluster in which no kubelet has started the pods of the job yet."""
    cluster = new_cluster(replicas=replicas)
    worker = cluster._body["spec"]["replicaSpecs"]["worker"]
    worker["template"]["spec"]["volumes"] = list(volumes)
    await cluster.create(ELASTIC_JOBS, cluster._body)
    for _ in range(5):
        await cluster.run_operator()
    assert len(pod_names(cluster)) == replicas
    return cluster


async def message(cluster: Cluster, *, reason: str, mounted: bool, **waiting: str) -> str:
    """Return the message of the job when the kubelet has reported that its containers wait."""
    status = {
        "conditions": [{"type": "PodReadyToStartContainers", "status": str(mounted)}],
        "containerStatuses": [
            {"name": "train", "state": {"waiting": {"reason": reason, **waiting}}}
        ],
    }
    for name in pod_names(cluster):
        cluster.kube.set_status(PODS, name, phase="Pending", **status)
    for _ in range(3):
        await cluster.run_operator()
    return said(cluster)


def said(cluster: Cluster) -> str:
    """Return the message of the job, which its condition Running repeats."""
    status = cluster.job().status
    [running] = [each for each in status.conditions if each.type == "Running"]
    assert (running.status, running.reason, running.message) == ("False", "Waiting", status.message)
    return status.message


async def test_a_pod_whose_volumes_are_not_mounted_names_what_must_exist() -> None:
    cluster = await starting(FILES, TOKEN, CLAIM, *NEEDLESS)
    assert await message(cluster, reason="ContainerCreating", mounted=False) == (
        "waiting: 0 of 1 workers ready; job-worker-0: it mounts ConfigMap job-files, Secret hub, "
        f"PersistentVolumeClaim data; {ADVICE}"
    )
    text = await message(cluster, reason="ContainerCreating", mounted=True)
    assert text == "waiting: 0 of 1 workers ready", "the kubelet pulls the image"
    await cluster.settle()
    assert cluster.job().status.message == ""


async def test_pods_without_such_volumes_are_not_named() -> None:
    cluster = await starting(*NEEDLESS)
    text = await message(cluster, reason="ContainerCreating", mounted=False)
    assert text == "waiting: 0 of 1 workers ready"


@pytest.mark.parametrize(
    ("reason", "advice"), [("CreateContainerConfigError", f"; {ADVICE}"), ("ImagePullBackOff", "")]
)
async def test_the_message_has_the_reason_of_a_container(reason: str, advice: str) -> None:
    cluster = await starting(FILES)
    text = await message(cluster, reason=reason, mounted=True, message='configmap "x" not found')
    assert text == (
        f'waiting: 0 of 1 workers ready; job-worker-0: {reason}: configmap "x" not found{advice}'
    )


async def test_of_many_pods_each_reason_is_named_once_and_the_text_is_bounded() -> None:
    secrets = [{"name": f"v{n}", "secret": {"secretName": f"s{n}"}} for n in range(99)]
    cluster = await starting(*secrets, replicas=6)
    text = await message(cluster, reason="ContainerCreating", mounted=False)
    assert text.count(ADVICE) == 1
    assert "; job-worker-0: it mounts Secret s0" in text
    assert "Secret s4 and 94 more; " in text
    text = await message(cluster, reason="ErrImagePull", mounted=True, message="x" * 9999)
    assert len(text) < 600
