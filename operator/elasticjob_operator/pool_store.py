"""The ElasticPools as last observed, and what the leader remembers of their jobs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.elasticpool import ElasticPool
from elasticjob_api.meta import Object, ObjectMeta
from elasticjob_api.pooled_jobs import elastic_role, pool_of

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
    """Pools by namespace and UID, priority classes by name, and memories by pool and job."""

    _pools: dict[str, dict[str, ElasticPool]] = field(default_factory=lambda: defaultdict(dict))
    _priorities: dict[str, PriorityClass] = field(default_factory=dict)
    _memories: dict[str, dict[str, Memory]] = field(default_factory=dict)

    def update(self, before: ElasticPool | None, after: ElasticPool | None) -> str:
        """Cache a pool that was added, changed or deleted (`after` None); return its namespace."""
        pool = after or before
        assert pool is not None
        namespace = pool.metadata.namespace
        uid = pool.metadata.uid
        if after is not None:
            self._pools[namespace][uid] = after
        else:
            self._pools[namespace].pop(uid, None)
            self._memories.pop(uid, None)
        return namespace

    def update_priority(self, before: PriorityClass | None, after: PriorityClass | None) -> None:
        """Cache a priority class that was added, changed or deleted (`after` None)."""
        if before is not None:
            self._priorities.pop(before.metadata.name, None)
        if after is not None:
            self._priorities[after.metadata.name] = after

    def keys(self, namespace: str) -> list[JobKey]:
        """Return the keys of the pools of a namespace."""
        pools = self._pools.get(namespace, {}).values()
        return [JobKey(namespace, pool.metadata.name) for pool in pools]

    def all_keys(self) -> list[JobKey]:
        """Return the keys of all pools."""
        return [key for namespace in self._pools for key in self.keys(namespace)]

    def all_pools(self) -> list[ElasticPool]:
        """Return all pools."""
        return [pool for pools in self._pools.values() for pool in pools.values()]

    def pool(self, key: JobKey) -> ElasticPool | None:
        """Return a pool; None if it does not exist."""
        pools = self._pools.get(key.namespace, {}).values()
        return next((pool for pool in pools if pool.metadata.name == key.name), None)

    def pool_of(self, job: ElasticJob) -> ElasticPool | None:
        """Return the oldest pool that selects a job; None if there is none."""
        pools = self._pools.get(job.metadata.namespace)
        return pool_of(job, pools.values()) if pools else None

    def share_of(self, job: ElasticJob) -> PoolShare | None:
        """Return what a job's pool has given to it; None if no pool decides about it."""
        pool = self.pool_of(job)
        if pool is None or not shares(job):
            return None
        memory = self._memories.get(pool.metadata.uid, {}).get(job.metadata.uid, Memory())
        return PoolShare(pool.metadata.name, elastic_role(job), memory.promised)

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
