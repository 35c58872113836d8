"""The metrics of ElasticPools: their jobs, and since when one waits for members."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from elasticjob_operator.store import Store

MAX_POOLS = 200
"""The number of pools with series, the first by namespace and name."""
_LABELS = ("pool_namespace", "pool_name")


def pool_metrics(stores: Iterable[Store]) -> Iterator[Metric]:
    """Yield the metrics of the first pools."""
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
    keyed = ((key, store.pools) for store in stores for key in store.pools.all_keys())
    for key, pools in heapq.nsmallest(MAX_POOLS, keyed, key=lambda each: str(each[0])):
        pool = pools.pool(key)
        assert pool is not None
        name = [key.namespace, key.name]
        jobs.add_metric(name, pool.status.jobs)
        waiting.add_metric(name, pool.status.waiting)
        memories = pools.memories(pool).values()
        begun = [each.waits_since for each in memories if each.waits_since is not None]
        if begun:
            since.add_metric(name, min(begun))
    yield from (jobs, waiting, since)
