"""A pool of a ClusterQueue of Kueue, on a cluster in memory, wherever its operator is killed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from elasticjob_kube.resources import ELASTIC_JOBS, ELASTIC_POOLS, KUEUE_WORKLOADS, SCALE_PLANS
from elasticjob_operator.core.model.cluster_queue import QueuedWorkload
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.queue_sharing import decide_queue

from tests.support.played_kueue import CLUSTER_QUEUE
from tests.support.simulator.cluster import NAMESPACE
from tests.support.simulator.pool_cluster import POOL
from tests.support.simulator.queue_cluster import QueueCluster

MOST_WRITES = 90
"""More writes than the operator makes in one history."""


async def history(cluster: QueueCluster, *, killed_at: int | None = None) -> None:
    """A job fills the queue; somebody's urgent Workload gets quota of it, and ends."""
    await cluster.start()
    await cluster.submit("low", 4)
    cluster.kube.crash_in = killed_at
    await cluster.settle()
    assert sizes(cluster, "low") == [4]
    await cluster.foreign("urgent", 2, 100)
    await cluster.settle()
    assert sizes(cluster, "low") == [2]
    assert is_admitted(cluster, "urgent")
    cluster.kube.remove(KUEUE_WORKLOADS, "urgent")
    await cluster.settle()
    assert sizes(cluster, "low") == [4]
    assert cluster.job("low").spec.replica_specs["worker"].replicas == 4


def sizes(cluster: QueueCluster, *jobs: str) -> list[int]:
    """Return the running members of jobs."""
    return [len(cluster.members(job)) for job in jobs]


def is_admitted(cluster: QueueCluster, workload: str) -> bool:
    conditions = cluster.kube.objects[KUEUE_WORKLOADS, workload]["status"]["conditions"]
    return any(each["type"] == "Admitted" and each["status"] == "True" for each in conditions)


async def test_a_job_gives_quota_to_an_urgent_workload_and_gets_it_back() -> None:
    cluster = QueueCluster(5)
    await history(cluster)
    assert cluster.kube.writes < MOST_WRITES
    assert [plan["status"]["phase"] for plan in cluster.plans("low")] == ["Succeeded"] * 2
    status = cluster.status()
    assert (status["jobs"], status["used"], status.get("message", "")) == (1, "cpu 5/5", "")


@pytest.mark.guarantee("queue-shares")
@pytest.mark.parametrize("killed_at", range(1, MOST_WRITES))
async def test_jobs_of_a_queue_whose_operator_dies_at_any_write_are_shrunk_and_grow_again(
    killed_at: int,
) -> None:
    await history(QueueCluster(5), killed_at=killed_at)


async def test_a_second_job_of_higher_priority_starts_and_grows_at_the_cost_of_the_first() -> None:
    cluster = QueueCluster(8)
    await cluster.start()
    await cluster.submit("low", 6)
    await cluster.settle()
    await cluster.submit("equal", 2)
    await cluster.settle()
    assert sizes(cluster, "low", "equal") == [6, 0]
    await cluster.submit("high", 3, priority="urgent")
    await cluster.settle()
    assert sizes(cluster, "low", "equal", "high") == [3, 0, 3]
    cluster.finish("high")
    await cluster.settle()
    assert sizes(cluster, "low", "equal") == [4, 2], "who waits comes before who wants it back"


async def test_a_plan_for_more_members_than_the_pool_would_give_now_is_withdrawn() -> None:
    cluster = QueueCluster(5)
    await cluster.start()
    await cluster.submit("low", 4)
    await cluster.settle()
    cluster.kube.edit(ELASTIC_JOBS, "low", _most_of_six)
    await create_plan(cluster, "more", 5, source="Pool")
    await cluster.settle()
    assert (SCALE_PLANS, "more") not in cluster.kube.objects
    assert sizes(cluster, "low") == [4]


async def test_a_plan_of_the_pool_that_waits_for_quota_gives_way_to_one_of_a_user() -> None:
    cluster = QueueCluster(5)
    cluster.kueue.elastic = False  # so that growing needs the quota of both sizes for a moment
    await cluster.start()
    await cluster.submit("low", 4)
    await cluster.settle()
    await cluster.foreign("urgent", 2, 100)
    await cluster.settle()
    cluster.kube.remove(KUEUE_WORKLOADS, "urgent")
    await cluster.settle()
    less, more = sorted(
        cluster.plans("low"), key=lambda each: each["status"]["phase"], reverse=True
    )
    assert (less["status"]["phase"], more["status"]["phase"]) == ("Succeeded", "Pending")
    assert more["status"]["message"].startswith("waits for quota in queue team: insufficient")
    await create_plan(cluster, "one", 1)
    await cluster.settle()
    phases = {each["metadata"]["name"]: each["status"]["phase"] for each in cluster.plans("low")}
    assert phases["one"] == "Succeeded"
    assert phases[more["metadata"]["name"]] == "Superseded"
    assert sizes(cluster, "low") == [1], "the user's plan is the new wish"


def _most_of_six(spec: dict[str, Any]) -> None:
    spec["replicaSpecs"]["worker"]["maxReplicas"] = 6


async def create_plan(cluster: QueueCluster, name: str, size: int, **spec: Any) -> None:
    """Create a plan for this size of the job `low`."""
    sizes = {"worker": {"replicas": size}}
    body = {
        "kind": "ScalePlan",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"jobName": "low", "replicaResourceSpecs": sizes, **spec},
    }
    await cluster.kube.create(SCALE_PLANS, NAMESPACE, body)


async def test_a_job_without_members_that_need_quota_neither_gives_nor_waits() -> None:
    cluster = QueueCluster(5)
    await cluster.start()
    await cluster.submit("low", 4)
    await cluster.settle()
    (workload,) = cluster.kube.all(KUEUE_WORKLOADS)
    name = workload["metadata"]["name"]
    status = {**workload["status"], "reclaimablePods": [{"name": "worker", "count": 4}]}
    cluster.kube.set_status(KUEUE_WORKLOADS, name, **status)
    store = cluster.operator.store
    assert store.queues is not None
    read = msgspec.convert(cluster.kube.objects[KUEUE_WORKLOADS, name], QueuedWorkload)
    store.queues.update_workload(None, read)
    pool = store.pools.pool(JobKey(NAMESPACE, POOL))
    assert pool is not None
    decision = decide_queue(store, pool, cluster.now)
    assert (decision.found, decision.others) == ([], (1000,))


@pytest.mark.parametrize(
    ("lacks", "why"),
    [
        ("switch", "the operator runs without its switch for Kueue"),
        ("list", "are not listed"),
        ("local queue", "no LocalQueue of namespace"),
        ("cluster queue", "ClusterQueue 'all' does not exist"),
    ],
)
async def test_a_pool_that_cannot_share_a_queue_says_why_and_changes_nothing(
    lacks: str, why: str
) -> None:
    cluster = QueueCluster(5)
    await cluster.start()
    await cluster.submit("low", 4)
    await cluster.settle()
    store = cluster.operator.store
    assert store.queues is not None
    if lacks == "switch":
        store.queues = None
    elif lacks == "list":
        store.queues.is_listed = lambda: False
    elif lacks == "local queue":
        store.queues.local_queues.clear()
    else:
        store.queues.cluster_queues.clear()
    await cluster.operator.sharing.reconcile(JobKey(NAMESPACE, POOL))
    assert why in cluster.status()["message"]
    assert sizes(cluster, "low") == [4]


async def test_only_the_oldest_pool_of_a_queue_has_an_effect() -> None:
    cluster = QueueCluster(5)
    metadata = {"name": "older", "namespace": NAMESPACE}
    spec = {"clusterQueue": CLUSTER_QUEUE, "selector": {"team": "other"}}
    await cluster.kube.create(ELASTIC_POOLS, NAMESPACE, {"metadata": metadata, "spec": spec})
    await cluster.start()
    await cluster.submit("low", 4)
    await cluster.settle()
    await cluster.foreign("urgent", 2, 100)
    await cluster.settle()
    assert sizes(cluster, "low") == [4]
    assert not is_admitted(cluster, "urgent")
    assert "ns/older names ClusterQueue 'all', too" in cluster.status()["message"]


async def test_a_job_without_a_queue_is_not_in_a_pool_of_a_queue() -> None:
    cluster = QueueCluster(9)
    cluster.labels = {}
    await cluster.start()
    await cluster.submit("free", 4)
    await cluster.settle()
    assert sizes(cluster, "free") == [4]
