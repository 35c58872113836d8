"""Which pool a job is in, and what a change of a pool concerns."""

from __future__ import annotations

from typing import Any

import msgspec
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.elasticpool import ElasticPool
from elasticjob_operator.job_keys import JobKey
from elasticjob_operator.pool_store import PoolStore

GIVEN: dict[str, Any] = {"capacity": {"cpu": "4"}}


def pool(name: str, namespace: str, day: int, version: int = 1, **spec: Any) -> ElasticPool:
    found = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}/{name}",
            "resourceVersion": str(version),
            "creationTimestamp": f"2026-01-{day:02}T00:00:00Z",
        },
        "spec": spec,
    }
    return msgspec.convert(found, ElasticPool)


def job(namespace: str) -> ElasticJob:
    found = {
        "metadata": {"name": "a", "namespace": namespace, "uid": f"job of {namespace}"},
        "spec": {"framework": "custom", "replicaSpecs": {"worker": {"template": {}}}},
    }
    return msgspec.convert(found, ElasticJob)


def pool_of(store: PoolStore, namespace: str) -> str | None:
    found = store.pool_of(job(namespace))
    return found.metadata.name if found else None


def test_of_pools_without_a_capacity_only_the_oldest_shares_the_nodes() -> None:
    store = PoolStore()
    old = pool("old", "one", 1)
    young = pool("young", "two", 2)
    for each in (young, old, pool("given", "three", 3, **GIVEN)):
        store.update(None, each)
    assert [pool_of(store, space) for space in ("one", "two", "three")] == ["old", None, "given"]
    assert [store.has_effect(each) for each in (old, young)] == [True, False]


def test_a_pool_without_effect_leaves_its_jobs_to_a_younger_one_with_a_capacity() -> None:
    store = PoolStore()
    for each in (pool("old", "one", 1), pool("none", "two", 2), pool("given", "two", 3, **GIVEN)):
        store.update(None, each)
    assert pool_of(store, "two") == "given"


def test_the_next_pool_shares_the_nodes_when_the_oldest_is_gone_or_gets_a_capacity() -> None:
    old = pool("old", "one", 1)
    young = pool("young", "two", 2)
    for after in (None, pool("old", "one", 1, version=2, **GIVEN)):
        store = PoolStore()
        store.update(None, old)
        store.update(None, young)
        assert store.update(old, after) == {"one", "two"}, "the jobs of both are decided again"
        assert pool_of(store, "two") == "young"


def test_of_pools_of_all_partitions_only_the_oldest_shares_the_nodes() -> None:
    old = pool("old", "one", 1)
    young = pool("young", "two", 2)
    here = {"one": ("one", "old"), "two": ("two", "young")}
    shares = []
    for namespace, key in here.items():
        store = PoolStore({namespace}.__contains__)
        for each in (young, old):
            store.update(None, each)
        assert store.all_keys() == [JobKey(*key)], "each partition decides about its own"
        assert store.pool(JobKey("two", "young")) == (young if namespace == "two" else None)
        shares.append(pool_of(store, namespace))
        assert store.update(old, None) >= {"two"}
        assert pool_of(store, "two") == "young"
    assert shares == ["old", None]


def test_a_change_concerns_the_jobs_of_its_namespace_and_a_status_concerns_none() -> None:
    store = PoolStore()
    before = pool("given", "one", 1, **GIVEN)
    store.update(None, pool("other", "two", 2))
    assert store.update(None, before) == {"one"}
    assert store.update(before, pool("given", "one", 1, version=2, **GIVEN)) == set()
    changed = pool("given", "one", 1, version=3, policy="Fair", **GIVEN)
    assert store.update(before, changed) == {"one"}
    assert store.update(changed, None) == {"one"}


def test_a_late_answer_brings_no_deleted_pool_back_and_undoes_no_later_change() -> None:
    store = PoolStore()
    first = pool("given", "one", 1, version=1, **GIVEN)
    answer = pool("given", "one", 1, version=2, **GIVEN)
    edited = pool("given", "one", 1, version=3, policy="Fair", **GIVEN)
    store.update(None, first)
    store.update(first, edited)
    store.refresh(answer)
    assert store.all_pools() == [edited]
    store.update(edited, None)
    store.refresh(answer)
    assert store.all_pools() == []
    assert pool_of(store, "one") is None


def test_a_pool_whose_namespace_has_no_queue_keeps_nobody_from_its_quota() -> None:
    store = PoolStore(has_queue=lambda namespace, queue: (namespace, queue) != ("one", "q"))
    without = pool("without", "one", 1, clusterQueue="q")
    first = pool("first", "two", 2, clusterQueue="q")
    second = pool("second", "three", 3, clusterQueue="q")
    elsewhere = pool("elsewhere", "three", 4, clusterQueue="r")
    nodes = pool("nodes", "four", 5)
    for each in (without, first, second, elsewhere, nodes):
        store.update(None, each)
    effects = [store.has_effect(each) for each in (without, first, second, elsewhere, nodes)]
    assert effects == [False, True, False, True, True]
