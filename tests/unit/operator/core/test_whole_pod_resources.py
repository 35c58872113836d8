"""Tests templates that set `spec.resources`, the resources of the whole pod."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from elasticjob_api.meta import Json
from elasticjob_api.pod_requests import pod_requests
from elasticjob_kube.resources import KUEUE_WORKLOADS, PODS, SCALE_OUTS, SCALE_PLANS

from tests.support.job_cluster import end_training
from tests.support.played_kueue import queued_cluster
from tests.support.simulator.cluster import Cluster
from tests.support.simulator.nodes import Nodes


def with_whole_pod(cluster: Cluster, resources: Json, container: Json | None = None) -> Cluster:
    """Return a cluster whose job sets resources of the workers' pods."""
    worker = cluster._body["spec"]["replicaSpecs"]["worker"]["template"]["spec"]
    worker["resources"] = resources
    worker["containers"][0]["resources"] = container or {}
    return cluster


async def started(resources: Json, container: Json | None = None, **options: Any) -> Nodes:
    nodes = Nodes(with_whole_pod(Cluster(replicas=2, **options), resources, container))
    return await nodes.started()


@pytest.mark.parametrize(
    ("own", "container", "cpu"),
    [
        ({"requests": {"cpu": 3}}, {"requests": {"cpu": 1}}, 3),
        ({"limits": {"cpu": 3}}, {}, 3),
        ({"limits": {"cpu": 3}}, {"requests": {"cpu": 1}}, 1),
        ({"requests": {"memory": "1Gi"}}, {"requests": {"cpu": 1}}, 1),
    ],
)
def test_a_pod_requests_what_it_sets_for_all_its_containers(
    own: Json, container: Json, cpu: int
) -> None:
    found = pod_requests({"resources": own, "containers": [{"resources": container}]})
    assert found["cpu"] == Decimal(cpu)


@pytest.mark.guarantee("refusals-name-the-bound")
async def test_a_plan_cannot_set_what_the_whole_pod_sets_and_says_so() -> None:
    nodes = await started({"requests": {"cpu": "2"}})
    for name, resource in (("cpu", {"cpu": "1"}), ("memory", {"memory": "1Gi"})):
        entry = {"worker": {"resource": resource}}
        await nodes.cluster.apply(SCALE_PLANS, name, replicaResourceSpecs=entry)
        await nodes.settle()
    refused = nodes.plan("cpu")
    assert refused["phase"] == "Failed"
    for part in ("spec.replicaResourceSpecs.worker.resource.cpu: ", "template.spec.resources"):
        assert part in refused["message"]
    assert nodes.plan("memory")["phase"] == "Succeeded"


async def test_the_jobs_limits_count_what_whole_pods_request() -> None:
    limits = {"resourceLimits": {"cpu": "5"}}
    nodes = await started({"requests": {"cpu": "2"}}, autoscaling=limits)
    await nodes.cluster.apply(SCALE_OUTS, "more", count=1)
    await nodes.settle()
    status = nodes.cluster.kube.objects[SCALE_OUTS, "more"]["status"]
    assert "would request cpu 6, above the job's limit 5" in status["message"]


async def test_a_member_that_ran_out_of_the_pods_memory_restarts_with_the_same() -> None:
    memory = {"limits": {"memory": "1Gi"}}
    nodes = await started(memory, memory)
    end_training(nodes.cluster, "job-worker-0", 137, "OOMKilled")
    nodes.cluster.now += 60
    await nodes.until(lambda: "job-worker-0-1" in nodes.live_pods())
    pod = nodes.cluster.kube.objects[PODS, "job-worker-0-1"]["spec"]
    assert (pod["resources"], pod["containers"][0]["resources"]) == (memory, memory)


async def test_the_quota_of_a_job_has_what_whole_pods_request() -> None:
    cluster, kueue = queued_cluster(10, replicas=2)
    with_whole_pod(cluster, {"requests": {"cpu": "2"}})
    await kueue.start()
    [workload] = cluster.kube.all(KUEUE_WORKLOADS)
    [workers] = [each for each in workload["spec"]["podSets"] if each["name"] == "worker"]
    assert workers["template"]["spec"]["resources"] == {"requests": {"cpu": "2"}}
