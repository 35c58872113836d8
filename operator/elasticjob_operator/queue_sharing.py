"""Decides about a pool of a ClusterQueue, from Kueue's queues and Workloads as last observed."""

from __future__ import annotations

from dataclasses import dataclass

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.elasticpool import ElasticPool
from elasticjob_api.pooled_jobs import elastic_role
from elasticjob_api.scaleplan import ScalePlan

from elasticjob_operator.core.model.cluster_queue import QueuedWorkload
from elasticjob_operator.core.model.identity import identity_of
from elasticjob_operator.core.sharing import cluster_queue, facts
from elasticjob_operator.core.sharing.elastic_pool import no_effect, with_capacity
from elasticjob_operator.core.sharing.model import Amounts, Pool, PooledJob, Sharing
from elasticjob_operator.queue_store import QueueStore
from elasticjob_operator.store import Store

_SWITCH = "spec.clusterQueue: the operator runs without its switch for Kueue (docs/kueue.md)"
_NOT_LISTED = (
    "spec.clusterQueue: ClusterQueues, LocalQueues and Workloads are not listed; the operator's "
    "log says which right or definition is missing"
)


class Unshared(Exception):
    """Nothing can be decided about a pool; the message says why, or is empty for a moment."""


@dataclass(frozen=True)
class QueueDecision:
    """A decision about a pool of a ClusterQueue, and on what it was made.

    Attributes:
        resources: the names of what the queue has.
        rules: of the pool; its capacity is what the queue has.
        others: what Workloads hold that are not of its jobs.
        jobs: its jobs that have quota, by name.
        found: what was known of them and of the Workloads that wait.
        sharing: what to do.
        in_vain: earlier plans of the pool that shall not wait any longer.
    """

    resources: tuple[str, ...]
    rules: Pool
    others: Amounts
    jobs: dict[str, ElasticJob]
    found: list[PooledJob]
    sharing: Sharing
    in_vain: list[ScalePlan]


def decide_queue(store: Store, pool: ElasticPool, now: float) -> QueueDecision:
    """Decide about a pool of a ClusterQueue, and keep what must be remembered of it.

    Raises:
        Unshared: it has no effect now.
    """
    queues = _queues(store, pool)
    name = pool.spec.cluster_queue or ""
    queue = queues.cluster_queues.get(name)
    if why := cluster_queue.why_not_shared(name, queue):
        raise Unshared(why)
    assert queue is not None
    resources = tuple(sorted(queue.nominal))
    memories = store.pools.memories(pool)
    jobs: dict[str, ElasticJob] = {}
    found: list[PooledJob] = []
    for job, workload in _running(store, queues, pool):
        memory = memories.setdefault(job.metadata.uid, facts.Memory())
        fact = _fact(store, pool, job, workload, memory, resources)
        if fact.size:
            jobs[job.metadata.name] = job
            found.append(fact)
    running = {job.metadata.uid for job in jobs.values()}
    use = cluster_queue.use_of(
        queue, queues.workloads.values(), queues.local_queues, running, memories.keys()
    )
    for uid in memories.keys() - running - {each.metadata.uid for each in use.waiting}:
        del memories[uid]
    waiting = _waiting(pool, use, memories, now)
    rules = with_capacity(pool, use.nominal)
    sharing = cluster_queue.share_queue(rules, use, found, list(waiting.values()), now)
    for uid, fact in waiting.items():
        cluster_queue.remember_waiter(memories[uid], fact, sharing, now)
    in_vain = []
    for fact in found:
        job = jobs[fact.name]
        _remember(store, job, memories[job.metadata.uid], fact, sharing, now)
        in_vain += facts.waiting_in_vain(store.with_queue(job), sharing.promised[fact.name])
    every = [*found, *waiting.values()]
    return QueueDecision(resources, rules, use.others, jobs, every, sharing, in_vain)


def _waiting(
    pool: ElasticPool, use: cluster_queue.QueueUse, memories: dict[str, facts.Memory], now: float
) -> dict[str, PooledJob]:
    """Return what must be known of each Workload for which jobs may give members, by its UID."""
    namespace = pool.metadata.namespace
    found: dict[str, PooledJob] = {}
    for each in use.waiting:
        uid = each.metadata.uid
        memory = memories.setdefault(uid, facts.Memory())
        if not cluster_queue.is_set_aside(memory, now):
            found[uid] = cluster_queue.waiter(
                each, memory, use.resources, namespace, pool.spec.weights
            )
    return found


def _remember(
    store: Store,
    job: ElasticJob,
    memory: facts.Memory,
    fact: PooledJob,
    sharing: Sharing,
    now: float,
) -> None:
    memory.waits_since = (memory.waits_since or now) if fact.name in sharing.waiting else None
    ready = store.pods.of(identity_of(job)).of(elastic_role(job)).ready_count
    facts.remember(memory, job, fact, ready, now)


def _queues(store: Store, pool: ElasticPool) -> QueueStore:
    """Return Kueue's queues; raise `Unshared` if the pool may share none of them."""
    name = pool.spec.cluster_queue or ""
    namespace = pool.metadata.namespace
    queues = store.queues
    if queues is None:
        raise Unshared(_SWITCH)
    if not queues.is_listed():
        raise Unshared(_NOT_LISTED)
    if not queues.has_queue(namespace, name):
        raise Unshared(
            f"spec.clusterQueue: no LocalQueue of namespace {namespace!r} leads to ClusterQueue "
            f"{name!r}; create one, or name another ClusterQueue"
        )
    other = store.pools.older(pool)
    if other is not None and other.metadata.uid != pool.metadata.uid:
        raise Unshared(no_effect(pool, other.metadata))
    return queues


def _running(
    store: Store, queues: QueueStore, pool: ElasticPool
) -> list[tuple[ElasticJob, QueuedWorkload]]:
    """Return the pool's jobs that have quota of the queue, with the Workload that has it."""
    found = []
    for key in store.job_keys(pool.metadata.namespace):
        job = store.job(key)
        if job is None or store.quotas is None or store.pools.pool_of(job) is not pool:
            continue
        quota = store.quotas.of(job)
        current = quota.current if quota is not None else None
        admission = current.status.admission if current is not None else None
        if (
            current is None
            or admission is None
            or admission.cluster_queue != pool.spec.cluster_queue
        ):
            continue
        workload = queues.workloads.get(current.metadata.uid)
        if workload is None or workload.reserved is None:
            raise Unshared  # this watch is behind the other one
        found.append((job, workload))
    return found


def _fact(
    store: Store,
    pool: ElasticPool,
    job: ElasticJob,
    workload: QueuedWorkload,
    memory: facts.Memory,
    resources: tuple[str, ...],
) -> PooledJob:
    members, member, fixed = cluster_queue.quota_of(workload, elastic_role(job), resources)
    return facts.fact(
        store.with_queue(job),
        memory,
        member=member,
        fixed=fixed,
        priority=workload.spec.priority or 0,
        weight=pool.spec.weights.get(workload.priority_class, 1.0),
        quota=members,
    )
