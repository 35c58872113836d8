"""The metrics of ElasticPools: their jobs, and since when one waits for members."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from elasticjob_api.elasticpool import ElasticPool
from prometheus_client.core import GaugeMetricFamily, Metric

from elasticjob_operator.store import Store

MAX_POOLS = 200
"""The number of pools with series, the first by namespace and name."""
_LABELS = ("pool_namespace", "pool_name")


def pool_metrics(stores: Iterable[Store]) -> Iterator[Metric]:
    """Yield the metrics of the first pools that are decided about here."""
    jobs = GaugeMetricFamily("elasticjob_pool_jobs", "Jobs that have not ended.", labels=_LABELS)
    waiting = GaugeMetricFamily(
        "elasticjob_pool_waiting_jobs",
        "Jobs that have fewer members than they should get.",
        labels=_LABELS,
    )
    since = GaugeMetricFamily(
        "elasticjob_pool_waiting_since_timestamp_seconds",
        "When the job that has waited longest began to wait; without one, there is no series.",
        labels=_LABELS,
    )
    found = (
        (_names(pool), pool, store)
        for store in stores
        for pool in store.pools.all_pools()
        if store.pools.leads(pool.metadata.namespace)
    )
    for name, pool, store in heapq.nsmallest(MAX_POOLS, found, key=lambda each: each[0]):
        jobs.add_metric(name, pool.status.jobs)
        waiting.add_metric(name, pool.status.waiting)
        memories = store.pools.memories(pool).values()
        begun = [each.waits_since for each in memories if each.waits_since is not None]
        if begun:
            since.add_metric(name, min(begun))
    yield from (jobs, waiting, since)


def _names(pool: ElasticPool) -> list[str]:
    return [pool.metadata.namespace, pool.metadata.name]
