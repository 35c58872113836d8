"""Which pool a job is in, and what of the job the pool shares, for operator and clients. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.elasticpool import ElasticPool
from elasticjob_api.pod_requests import role_requests

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
"""Kueue's label on the job: the LocalQueue, of the job's namespace, whose quota it waits for."""


def pool_of(job: ElasticJob, pools: Iterable[ElasticPool]) -> ElasticPool | None:
    """Return the oldest of the pools of a job's namespace that selects it; None if none does.

    A pool of a ClusterQueue selects no job without a queue.
    """
    labels = job.metadata.labels
    return oldest(
        pool
        for pool in pools
        if pool.spec.selector.items() <= labels.items()
        and (KUEUE_QUEUE in labels or not pool.spec.cluster_queue)
    )


def oldest(pools: Iterable[ElasticPool]) -> ElasticPool | None:
    """Return the pool that was created first; None for no pools."""

    def age(pool: ElasticPool) -> tuple[str, str, str]:
        metadata = pool.metadata
        return metadata.creation_timestamp, metadata.namespace, metadata.name

    return min(pools, key=age, default=None)


def elastic_role(job: ElasticJob) -> str:
    """Return the role whose members a pool gives and takes."""
    roles = job.spec.replica_specs
    role = job.spec.autoscaling.role
    return role if role in roles else next(iter(roles))


def member_requests(job: ElasticJob) -> dict[str, Decimal]:
    """Return the requests of one member of the elastic role; plans may have changed them."""
    role = elastic_role(job)
    return {"pods": Decimal(1), **role_requests(job, role)}
