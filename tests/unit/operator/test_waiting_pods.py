"""A job that does not start says why its pods wait, also if their volumes cannot be mounted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.times import format_time
from elasticjob_kube.resources import ELASTIC_JOBS, PODS
from elasticjob_operator.core.decide import decide
from elasticjob_operator.core.model.observed import Observed, Pod
from elasticjob_operator.core.waiting_pods import MOUNT_SECONDS, why_they_wait

from tests.support.job_cluster import new_cluster, pod_names
from tests.support.simulator.cluster import DEFAULTS, Cluster

START = 1_800_000_000.0
FILES = {"name": "files", "configMap": {"name": "job-files"}}
TOKEN = {"name": "token", "secret": {"secretName": "hub", "optional": False}}
MAY_MISS = {"name": "more", "configMap": {"name": "more", "optional": True}}
Json = dict[str, Any]

pytestmark = pytest.mark.guarantee("pods-that-cannot-start")


def mounting(*volumes: Json, since: float = START, index: int = 0, sandbox: bool = False) -> Json:
    """Return a pod that has a node, and of which the kubelet mounts the volumes."""
    name = f"job-worker-{index}"
    labels = {names.LABEL_ROLE: "worker", names.LABEL_INDEX: str(index)}
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": format_time(since)},
        {"type": "PodReadyToStartContainers", "status": str(sandbox)},
    ]
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    return {
        "metadata": {"name": name, "uid": name, "labels": labels},
        "spec": {"containers": [{"name": "train"}], "volumes": list(volumes)},
        "status": {
            "phase": "Pending",
            "conditions": conditions,
            "containerStatuses": [{"name": "train", "state": waiting}],
        },
    }


def observed(*pods: Json, ready: int = 0) -> Observed:
    container = {"name": "train", "image": "i:1"}
    worker = {"template": {"spec": {"containers": [container]}}, "replicas": 2, "minReplicas": 1}
    replica = {"desired": 2, "indices": "0-1", "highestIndex": 1, "ready": ready}
    job = msgspec.convert(
        {
            "metadata": {"name": "job", "namespace": "n", "uid": "u", "finalizers": ["f"]},
            "spec": {"framework": "jax", "replicaSpecs": {"worker": worker}},
            "status": {"phase": "Starting", "replicaStatuses": {"worker": replica}},
        },
        ElasticJob,
    )
    return Observed(job=job, pods=tuple(msgspec.convert(pod, Pod) for pod in pods))


def reasons(*pods: Json, now: float, ready: int = 0) -> tuple[str, float | None]:
    seen = observed(*pods, ready=ready)
    return why_they_wait(seen, seen.job.status, now)


LATE = START + MOUNT_SECONDS
UNCREATED = f"its containers are not created {MOUNT_SECONDS} s after it got a node"


def test_a_pod_whose_volumes_are_not_mounted_names_them_after_a_minute() -> None:
    pod = mounting(FILES, TOKEN, MAY_MISS, {"name": "e", "emptyDir": {}})
    assert reasons(pod, now=LATE - 20) == ("", 20.0)
    assert reasons(pod, now=LATE) == (
        f"job-worker-0: {UNCREATED}; it mounts ConfigMap job-files, Secret hub: "
        "create what does not exist, or delete the job and submit it again",
        None,
    )
    assert reasons(mounting(), now=LATE)[0] == f"job-worker-0: {UNCREATED}; see its events"


def test_pods_that_pull_images_or_that_the_job_can_do_without_are_not_named() -> None:
    assert reasons(mounting(FILES, sandbox=True), now=LATE) == ("", None)
    assert reasons(mounting(FILES), now=LATE, ready=1) == ("", None)


def test_of_many_pods_each_reason_is_named_once() -> None:
    pods = [mounting(FILES, index=index) for index in range(200)]
    pods.append(mounting(TOKEN, index=200))
    text, _ = reasons(*pods, now=LATE)
    assert text.count(UNCREATED) == 2
    assert "job-worker-0: " in text
    assert "job-worker-200: " in text
    many = [{"name": f"v{number}", "secret": {"secretName": f"s{number}"}} for number in range(99)]
    assert "Secret s4 and 94 more:" in reasons(mounting(*many), now=LATE)[0]


async def starting() -> Cluster:
    """Return a cluster in which no kubelet has started the pods of the job yet."""
    cluster = new_cluster(replicas=1)
    await cluster.create(ELASTIC_JOBS, cluster._body)
    for _ in range(5):
        await cluster.run_operator()
    assert pod_names(cluster) == ["job-worker-0"]
    return cluster


@pytest.mark.parametrize("reason", ["CreateContainerConfigError", "ImagePullBackOff"])
async def test_the_message_of_a_starting_job_has_the_reason_of_its_pods(reason: str) -> None:
    cluster = await starting()
    waiting = {"reason": reason, "message": 'configmap "x" not found'}
    status = {"containerStatuses": [{"name": "train", "state": {"waiting": waiting}}]}
    cluster.kube.set_status(PODS, "job-worker-0", phase="Pending", **status)
    for _ in range(3):
        await cluster.run_operator()
    text = f'job-worker-0: {reason}: configmap "x" not found'
    assert cluster.job().status.message == f"waiting: 0 of 1 workers ready; {text}"


async def test_the_message_goes_when_the_volumes_are_mounted() -> None:
    cluster = await starting()
    status = mounting(since=cluster.now - MOUNT_SECONDS)["status"]
    cluster.kube.set_status(PODS, "job-worker-0", **status)
    await cluster.run_operator()
    await cluster.run_operator()
    assert UNCREATED in cluster.job().status.message
    await cluster.settle()
    assert cluster.job().status.message == ""


def test_the_operator_looks_again_when_the_time_for_mounting_is_over() -> None:
    """The kubelet does not change the pod then."""
    pods = [mounting(FILES, index=index) for index in (0, 1)]
    assert decide(observed(*pods), LATE - 20, DEFAULTS).requeue_after == 20.0
