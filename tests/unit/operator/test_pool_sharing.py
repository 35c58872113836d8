"""The operator carries out what a pool decides, on a cluster in memory, wherever it is killed."""

from __future__ import annotations

import pytest
from elasticjob_kube.resources import ELASTIC_JOBS, ELASTIC_POOLS, SCALE_PLANS

from tests.support.simulator.cluster import NAMESPACE
from tests.support.simulator.pool_cluster import POOL, PoolCluster

MOST_WRITES = 80
"""More writes than the operator makes in one history."""


async def history(cluster: PoolCluster, *, killed_at: int | None = None) -> None:
    """A job fills the pool; an urgent one arrives, gets its members, and ends."""
    await cluster.start()
    await cluster.submit("low", 4)
    cluster.kube.crash_in = killed_at
    await cluster.settle()
    assert len(cluster.members("low")) == 4
    await cluster.submit("high", 2, priority="urgent")
    await cluster.settle()
    assert len(cluster.members("high")) == 2
    assert len(cluster.members("low")) == 2
    cluster.finish("high")
    await cluster.settle()
    assert len(cluster.members("low")) == 4
    assert cluster.job("low").spec.replica_specs["worker"].replicas == 4


async def test_an_urgent_job_gets_members_of_a_full_pool_and_gives_them_back() -> None:
    cluster = PoolCluster()
    await history(cluster)
    assert cluster.kube.writes < MOST_WRITES
    sources = [plan["spec"]["source"] for plan in cluster.plans("low")]
    assert sources == ["Pool", "Pool"]
    assert all(plan["status"]["phase"] == "Succeeded" for plan in cluster.plans("low"))
    status = cluster.kube.objects[ELASTIC_POOLS, POOL]["status"]
    assert (status["jobs"], status["used"]) == (1, "cpu 4.1/4.6")
    assert status["lastAct"].startswith("low 4: ElasticPool pool has room for 2 more members")


@pytest.mark.guarantee("pool-shares")
@pytest.mark.parametrize("killed_at", range(1, MOST_WRITES))
async def test_a_pool_whose_operator_dies_at_any_write_holds_no_more_than_there_is(
    killed_at: int,
) -> None:
    cluster = PoolCluster()
    await history(cluster, killed_at=killed_at)


async def suspension(cluster: PoolCluster, *, killed_at: int | None = None) -> None:
    """A job fills the pool with its minimum; an urgent one needs its room, and ends."""
    await cluster.start()
    await cluster.submit("low", 1)
    cluster.kube.crash_in = killed_at
    await cluster.settle()
    assert len(cluster.members("low")) == 1
    await cluster.submit("high", 1, priority="urgent")
    await cluster.settle()
    assert len(cluster.members("high")) == 1
    assert cluster.members("low") == []
    assert cluster.job("low").status.phase == "Suspended"
    cluster.finish("high")
    await cluster.settle()
    assert len(cluster.members("low")) == 1


async def test_a_job_is_suspended_as_the_last_resort_and_resumes() -> None:
    cluster = PoolCluster(capacity={"cpu": "1100m"}, suspendLowerPriority=True)
    await suspension(cluster)
    status = cluster.kube.objects[ELASTIC_POOLS, POOL]["status"]
    said = "low 0: suspended for high (0 of 1 members, priority 1000)"
    assert status["lastAct"] == said
    assert cluster.plans("low") == []


@pytest.mark.guarantee("pool-shares")
@pytest.mark.parametrize("killed_at", range(1, MOST_WRITES))
async def test_a_pool_whose_operator_dies_while_it_suspends_holds_no_more_than_there_is(
    killed_at: int,
) -> None:
    cluster = PoolCluster(capacity={"cpu": "1100m"}, suspendLowerPriority=True)
    await suspension(cluster, killed_at=killed_at)


async def test_a_pool_at_rest_writes_nothing() -> None:
    cluster = PoolCluster()
    await cluster.start()
    await cluster.submit("low", 4)
    await cluster.settle()
    await cluster.submit("waits", 2)
    await cluster.settle()
    assert cluster.job("waits").status.phase == "Suspended"
    assert cluster.job("waits").status.message == "waits for room in ElasticPool pool"
    before = cluster.kube.version
    await cluster.settle()
    assert cluster.kube.version == before


async def test_a_job_that_waits_starts_when_the_pool_is_deleted() -> None:
    cluster = PoolCluster(capacity={"cpu": "100"})
    cluster.pool["capacity"] = {"cpu": "4600m"}
    await cluster.start()
    await cluster.submit("low", 4)
    await cluster.settle()
    await cluster.submit("waits", 2)
    await cluster.settle()
    cluster.pool["capacity"] = {"cpu": "100"}  # nothing bounds the jobs from now on
    pool = cluster.operator.store.pools.pool_of(cluster.job("waits"))
    cluster.kube.remove(ELASTIC_POOLS, POOL)
    cluster.operator.store.pools.update(pool, None)
    await cluster.settle()
    assert len(cluster.members("waits")) == 2


async def test_a_pool_says_which_name_in_its_capacity_is_that_of_no_resource() -> None:
    cluster = PoolCluster(capacity={"cpu": "4600m", "pods": 9, "gpu": 4})
    await cluster.start()
    await cluster.submit("a", 2)
    await cluster.settle()
    status = cluster.kube.objects[ELASTIC_POOLS, POOL]["status"]
    assert status["message"].startswith("spec.capacity: 'gpu' is not cpu, memory or an extended")
    assert status["used"] == "cpu 2.1/4.6"


async def test_a_second_pool_that_counts_the_nodes_says_so_and_leaves_its_jobs_alone() -> None:
    cluster = PoolCluster(capacity={"cpu": "100"})
    metadata = {"name": "older", "namespace": NAMESPACE}
    spec = {"selector": {"team": "other"}}
    await cluster.kube.create(ELASTIC_POOLS, NAMESPACE, {"metadata": metadata, "spec": spec})
    await cluster.start()
    cluster.kube.edit(ELASTIC_POOLS, POOL, lambda spec: spec.pop("capacity"))
    await cluster.submit("a", 2)
    await cluster.settle()
    assert len(cluster.members("a")) == 2
    status = cluster.kube.objects[ELASTIC_POOLS, POOL]["status"]
    text = f"has no effect: ElasticPool {NAMESPACE}/older counts the nodes, too"
    assert status["message"].startswith(text)
    assert "jobs" not in status


async def test_a_job_whose_size_was_edited_while_it_was_suspended_starts_again() -> None:
    cluster = PoolCluster()
    await cluster.start()
    await cluster.submit("a", 2)
    await cluster.settle()
    cluster.kube.edit(ELASTIC_JOBS, "a", lambda spec: spec.update(runPolicy={"suspend": True}))
    await cluster.settle()
    cluster.kube.edit(ELASTIC_JOBS, "a", _one_member)
    await cluster.settle()
    cluster.kube.edit(ELASTIC_JOBS, "a", lambda spec: spec.pop("runPolicy"))
    await cluster.settle()
    assert len(cluster.members("a")) == 1


async def test_an_edit_that_is_refused_keeps_no_members_from_others() -> None:
    cluster = PoolCluster()
    await cluster.start()
    await cluster.submit("low", 4)
    await cluster.settle()
    cluster.kube.edit(ELASTIC_JOBS, "low", _nine_members)
    await cluster.settle()
    (plan,) = cluster.plans("low")
    assert "above maxReplicas 4" in plan["status"]["message"]
    await cluster.submit("high", 2, priority="urgent")
    await cluster.settle()
    assert len(cluster.members("high")) == 2


async def test_a_plan_of_a_user_waits_for_room_and_begins_when_there_is_some() -> None:
    cluster = PoolCluster(capacity={"cpu": "3200m"})
    await cluster.start()
    await cluster.submit("a", 2)
    await cluster.settle()
    metadata = {"name": "more", "namespace": NAMESPACE}
    spec = {"jobName": "a", "replicaResourceSpecs": {"worker": {"replicas": 4}}}
    cluster.kube.edit(ELASTIC_JOBS, "a", _largest_size_of_six)
    await cluster.kube.create(
        SCALE_PLANS, NAMESPACE, {"kind": "ScalePlan", "metadata": metadata, "spec": spec}
    )
    await cluster.settle()
    status = cluster.kube.objects[SCALE_PLANS, "more"]["status"]
    assert status["phase"] == "Pending"
    assert "waits for room for 4 members of worker in ElasticPool pool" in status["message"]
    assert len(cluster.members("a")) == 3, "the pool gives what there is"
    job = cluster.job("a").status
    assert (job.phase, job.current_plan) == ("Running", None), "the pool's own plan has ended"
    cluster.pool["capacity"] = {"cpu": "5"}
    cluster.kube.edit(ELASTIC_POOLS, POOL, lambda spec: spec.update(cluster.pool))
    await cluster.settle()
    assert cluster.kube.objects[SCALE_PLANS, "more"]["status"]["phase"] == "Succeeded"
    assert len(cluster.members("a")) == 4


async def test_a_plan_of_a_pool_ends_if_its_room_is_gone() -> None:
    cluster = PoolCluster()
    await cluster.start()
    await cluster.submit("a", 4)
    await cluster.settle()
    cluster.kube.edit(ELASTIC_JOBS, "a", _largest_size_of_six)
    metadata = {"name": "more", "namespace": NAMESPACE}
    sizes = {"worker": {"replicas": 5}}
    spec = {"jobName": "a", "source": "Pool", "replicaResourceSpecs": sizes}
    await cluster.kube.create(
        SCALE_PLANS, NAMESPACE, {"kind": "ScalePlan", "metadata": metadata, "spec": spec}
    )
    await cluster.settle()
    assert cluster.kube.objects[SCALE_PLANS, "more"]["status"]["phase"] == "Superseded"


def _largest_size_of_six(spec: dict[str, object]) -> None:
    spec["replicaSpecs"]["worker"]["maxReplicas"] = 6  # type: ignore[index]


def _one_member(spec: dict[str, object]) -> None:
    spec["replicaSpecs"]["worker"]["replicas"] = 1  # type: ignore[index]


def _nine_members(spec: dict[str, object]) -> None:
    spec["replicaSpecs"]["worker"]["replicas"] = 9  # type: ignore[index]
