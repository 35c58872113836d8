"""The ElasticPools as last observed, and what the leader remembers of their jobs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.elasticpool import ElasticPool
from elasticjob_api.meta import Object, ObjectMeta
from elasticjob_api.pooled_jobs import elastic_role, oldest, pool_of

from elasticjob_operator.core.model.observed import PoolShare
from elasticjob_operator.core.sharing.facts import Memory, shares
from elasticjob_operator.job_keys import JobKey


class PriorityClass(Object, frozen=True):
    """The number that the name of a priority class stands for."""

    metadata: ObjectMeta
    value: int = 0
    global_default: bool = False


@dataclass
class PoolStore:
    """Pools by namespace and UID, priority classes by name, and memories by pool and job.

    Attributes:
        leads: whether the pools of a namespace are decided about here; by default all. Pools of
            other partitions are known because one of them may count the nodes.
        has_queue: whether a LocalQueue of a namespace leads to a ClusterQueue. Without one, a pool
            must not keep those of other namespaces from its quota.
    """

    leads: Callable[[str], bool] = lambda _: True
    has_queue: Callable[[str, str], bool] = lambda *_: False
    _pools: dict[str, dict[str, ElasticPool]] = field(default_factory=lambda: defaultdict(dict))
    _priorities: dict[str, PriorityClass] = field(default_factory=dict)
    _memories: dict[str, dict[str, Memory]] = field(default_factory=dict)
    of_nodes: ElasticPool | None = None
    """The pool that counts the nodes: the oldest without `capacity`. Another one would promise the
    same room again, and has no effect.
    """

    def update(self, before: ElasticPool | None, after: ElasticPool | None) -> set[str]:
        """Cache a pool that was added, changed or deleted (`after` None).

        Return the namespaces whose jobs may have another pool or other rules now.
        """
        pool = after or before
        assert pool is not None
        namespace = pool.metadata.namespace
        uid = pool.metadata.uid
        if after is None:
            self._pools[namespace].pop(uid, None)
            self._memories.pop(uid, None)
        elif not self._is_late(after):
            self._pools[namespace][uid] = after
        of_nodes = [each for each in self.all_pools() if each.spec.counts_nodes]
        self.of_nodes = oldest(of_nodes)
        if before is not None and after is not None and before.spec == after.spec:
            return set()
        if not any(each is not None and each.spec.counts_nodes for each in (before, after)):
            return {namespace}
        return {namespace, *(each.metadata.namespace for each in of_nodes)}

    def refresh(self, pool: ElasticPool) -> None:
        """Cache the answer to a write, unless the watch has reported a later state or the end."""
        if pool.metadata.uid in self._pools.get(pool.metadata.namespace, {}):
            self.update(pool, pool)

    def _is_late(self, pool: ElasticPool) -> bool:
        known = self._pools[pool.metadata.namespace].get(pool.metadata.uid)
        return known is not None and _version(known) > _version(pool)

    def update_priority(self, before: PriorityClass | None, after: PriorityClass | None) -> None:
        """Cache a priority class that was added, changed or deleted (`after` None)."""
        if before is not None:
            self._priorities.pop(before.metadata.name, None)
        if after is not None:
            self._priorities[after.metadata.name] = after

    def keys(self, namespace: str) -> list[JobKey]:
        """Return the keys of the pools of a namespace, if they are decided about here."""
        return [JobKey(namespace, pool.metadata.name) for pool in self._led(namespace)]

    def all_keys(self) -> list[JobKey]:
        """Return the keys of all pools that are decided about here."""
        return [key for namespace in self._pools for key in self.keys(namespace)]

    def all_pools(self) -> list[ElasticPool]:
        """Return all pools, those of other partitions included."""
        return [pool for pools in self._pools.values() for pool in pools.values()]

    def pool(self, key: JobKey) -> ElasticPool | None:
        """Return a pool; None if it does not exist, or is decided about elsewhere."""
        pools = self._led(key.namespace)
        return next((pool for pool in pools if pool.metadata.name == key.name), None)

    def _led(self, namespace: str) -> Collection[ElasticPool]:
        return self._pools.get(namespace, {}).values() if self.leads(namespace) else ()

    def has_effect(self, pool: ElasticPool) -> bool:
        """Return whether a pool shares anything."""
        other = self.older(pool)
        return other is None or other.metadata.uid == pool.metadata.uid

    def older(self, pool: ElasticPool) -> ElasticPool | None:
        """Return the pool that shares what this one would share, too; None if it may be any."""
        if queue := pool.spec.cluster_queue:
            return oldest(
                each
                for each in self.all_pools()
                if each.spec.cluster_queue == queue
                and self.has_queue(each.metadata.namespace, queue)
            )
        return self.of_nodes if pool.spec.counts_nodes else None

    def pool_of(self, job: ElasticJob) -> ElasticPool | None:
        """Return the oldest pool with an effect that selects a job; None if there is none."""
        pools = self._pools.get(job.metadata.namespace)
        return pool_of(job, filter(self.has_effect, pools.values())) if pools else None

    def share_of(self, job: ElasticJob) -> PoolShare | None:
        """Return what a job's pool has given to it; None if no pool decides about it."""
        pool = self.pool_of(job)
        if pool is None or not shares(job):
            return None
        memory = self._memories.get(pool.metadata.uid, {}).get(job.metadata.uid, Memory())
        return PoolShare(pool.metadata.name, elastic_role(job), memory.promised, memory.suspended)

    def memories(self, pool: ElasticPool) -> dict[str, Memory]:
        """Return what is remembered of a pool's jobs, by their UIDs."""
        return self._memories.setdefault(pool.metadata.uid, {})

    def priority(self, name: str) -> int:
        """Return the priority of pods of a class; without a name that of the default class."""
        if name:
            found = self._priorities.get(name)
            return found.value if found else 0
        defaults = (each.value for each in self._priorities.values() if each.global_default)
        return next(defaults, 0)


def _version(pool: ElasticPool) -> int:
    return int(pool.metadata.resource_version or 0)
