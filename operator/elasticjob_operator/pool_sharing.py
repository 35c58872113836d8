"""Carries out what an ElasticPool decides: creates ScalePlans, and lets jobs start and grow.

Promises of room are kept in this process alone. A new leader derives them from the pods that exist,
so that it promises nothing twice wherever the last one ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.elasticpool import ElasticPool, ElasticPoolStatus
from elasticjob_api.pooled_jobs import elastic_role, member_requests
from elasticjob_api.scaleplan import MAX_REASON_CHARACTERS, RolePlan, ScalePlanSpec
from elasticjob_kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from elasticjob_kube.resources import ELASTIC_POOLS, SCALE_PLANS
from elasticjob_kube.session import Kube
from msgspec.structs import replace

from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.identity import identity_of
from elasticjob_operator.core.model.observed import owner_reference
from elasticjob_operator.core.scaling import plan_manifests
from elasticjob_operator.core.sharing import facts
from elasticjob_operator.core.sharing.elastic_pool import (
    in_thousandths,
    no_effect,
    rules_of,
    status_of,
)
from elasticjob_operator.core.sharing.model import Amounts, Pool, PooledJob, Resize, Sharing
from elasticjob_operator.core.sharing.share import promised_at_start, share
from elasticjob_operator.decision_costs import DecisionCosts
from elasticjob_operator.job_keys import JobKey, key_of
from elasticjob_operator.queue_sharing import Unshared, decide_queue
from elasticjob_operator.store import Store
from elasticjob_operator.work_queue import retry_after

log = logging.getLogger(__name__)
_AGAIN_SECONDS = 10.0
"""How often a pool is decided again while time alone may change the decision."""
_PLAN_SECONDS = 300
"""The time in which new members must become ready; otherwise the nodes have no place for them."""


@dataclass
class PoolSharing:
    """Decides about pools, one at a time each."""

    kube: Kube
    store: Store
    reconcile_job: Callable[[JobKey], None]
    costs: DecisionCosts = field(default_factory=DecisionCosts)

    async def reconcile(self, key: JobKey) -> float | None:
        """Decide about a pool and carry it out; return the seconds after which to do so again.

        Raises:
            Retry: the API server has not accepted a write; decide again after a pause.
        """
        pool = self.store.pools.pool(key)
        if pool is None:
            self.costs.forget(key)
            return None
        if pool.spec.cluster_queue:
            return await self._share_queue(key, pool)
        now = self.kube.clock.now()
        with self.costs.measured(key):
            resources, rules, jobs, found = self._observed(pool)
            sharing = share(rules, found, now)
            self._promise(pool, jobs, found, sharing, now)
        try:
            made = [f"{job} 0: suspended {why}" for job, why in sharing.suspended.items()]
            made += [await self._create_plan(jobs[each.job], each) for each in sharing.resizes]
            status = status_of(pool, resources, rules, found, sharing, now, made)
            of_nodes = self.store.pools.of_nodes
            if of_nodes is not None and not self.store.pools.has_effect(pool):
                status = replace(status, message=no_effect(pool, of_nodes.metadata))
            await self._write_status(pool, status)
        except KubeError as error:
            raise retry_after(error) from error
        could_grow = any(job.size < job.wanted for job in found)
        return _AGAIN_SECONDS if sharing.waiting or could_grow else None

    async def _share_queue(self, key: JobKey, pool: ElasticPool) -> float | None:
        """Decide about a pool of a ClusterQueue, and carry it out; Kueue lets jobs start and grow.

        Raises:
            Retry: the API server has not accepted a write; decide again after a pause.
        """
        now = self.kube.clock.now()
        try:
            with self.costs.measured(key):
                found = decide_queue(self.store, pool, now)
            for plan in found.in_vain:
                with suppress(NotFound, Conflict):
                    metadata = plan.metadata
                    await self.kube.delete(
                        SCALE_PLANS, metadata.namespace, metadata.name, uid=metadata.uid
                    )
            sharing = found.sharing
            made = [await self._create_plan(found.jobs[each.job], each) for each in sharing.resizes]
            status = status_of(
                pool, found.resources, found.rules, found.found, sharing, now, made, found.others
            )
            await self._write_status(pool, replace(status, jobs=len(found.jobs), message=""))
        except Unshared as why:
            if str(why):
                nothing = ElasticPoolStatus(
                    last_act=pool.status.last_act,
                    last_act_time=pool.status.last_act_time,
                    message=str(why),
                )
                await self._write_status(pool, nothing)
            return _AGAIN_SECONDS
        except KubeError as error:
            raise retry_after(error) from error
        # While nobody waits and all have what they asked for, only a change of theirs matters.
        is_at_rest = all(job.size >= job.wanted for job in found.found)
        return None if is_at_rest else _AGAIN_SECONDS

    def _observed(
        self, pool: ElasticPool
    ) -> tuple[tuple[str, ...], Pool, dict[str, ElasticJob], list[PooledJob]]:
        """Return a pool's resources and rules, its jobs by name, and what it must know of them."""
        jobs = {job.metadata.name: job for job in self._jobs(pool)}
        nodes = self.store.nodes
        present = {n: each for n, each in nodes.allocatable.items() if n not in nodes.leaving}
        resources, rules = rules_of(pool, present)
        memories = self.store.pools.memories(pool)
        is_new = not memories
        for uid in memories.keys() - {job.metadata.uid for job in jobs.values()}:
            del memories[uid]
        found = [self._fact(pool, job, resources) for job in jobs.values()]
        if is_new:
            for name, members in promised_at_start(rules, found).items():
                memories[jobs[name].metadata.uid].promised = members
            found = [self._fact(pool, job, resources) for job in jobs.values()]
        return resources, rules, jobs, found

    def _jobs(self, pool: ElasticPool) -> list[ElasticJob]:
        """Return the jobs that a pool decides about, and others of it that still have pods."""
        found = []
        for key in self.store.job_keys(pool.metadata.namespace):
            job = self.store.job(key)
            if job is None or self.store.pools.pool_of(job) is not pool:
                continue
            if facts.shares(job) or self.store.pods.of(identity_of(job)).live_count:
                found.append(job)
        return found

    def _fact(self, pool: ElasticPool, job: ElasticJob, resources: tuple[str, ...]) -> PooledJob:
        memory = self.store.pools.memories(pool).setdefault(job.metadata.uid, facts.Memory())
        class_name = facts.priority_class(job)
        member, fixed = self._requests_of(job, memory, resources)
        return facts.fact(
            self.store.with_queue(job),
            memory,
            member=member,
            fixed=fixed,
            priority=self.store.pools.priority(class_name),
            weight=pool.spec.weights.get(class_name, 1.0),
        )

    def _requests_of(
        self, job: ElasticJob, memory: facts.Memory, resources: tuple[str, ...]
    ) -> tuple[Amounts, Amounts]:
        """Return what a member and the rest of a job take; computed once for each version."""
        role = job.status.replica_statuses.get(elastic_role(job))
        version = (job.metadata.generation, resources, None if role is None else role.resources)
        known = memory.requests
        if known is None or known[0] != version:
            member = in_thousandths(member_requests(job), resources)
            fixed = in_thousandths(facts.fixed_requests(job), resources)
            known = memory.requests = (version, (member, fixed))
        return known[1]

    def _promise(
        self,
        pool: ElasticPool,
        jobs: dict[str, ElasticJob],
        found: list[PooledJob],
        sharing: Sharing,
        now: float,
    ) -> None:
        """Let jobs start and grow as decided.

        What a job loses is its plan's matter: without the plan it keeps it.
        """
        memories = self.store.pools.memories(pool)
        for fact in found:
            job = jobs[fact.name]
            memory = memories[job.metadata.uid]
            waits = fact.name in sharing.waiting
            memory.waits_since = (memory.waits_since or now) if waits else None
            kept = 0 if fact.name in sharing.suspended else fact.size
            promised = max(sharing.promised[fact.name], kept)
            suspended = sharing.suspended.get(fact.name, "" if promised else memory.suspended)
            if (memory.promised, memory.suspended) != (promised, suspended):
                memory.promised = promised
                memory.suspended = suspended
                self.reconcile_job(key_of(job))
            ready = self.store.pods.of(identity_of(job)).of(elastic_role(job)).ready_count
            facts.remember(memory, job, fact, ready, now)

    async def _create_plan(self, job: ElasticJob, resize: Resize) -> str:
        """Create the plan of a change; its name follows from the job's version."""
        spec = ScalePlanSpec(
            job_name=job.metadata.name,
            source="Pool",
            reason=resize.reason[:MAX_REASON_CHARACTERS],
            replica_resource_specs={elastic_role(job): RolePlan(replicas=resize.size)},
            timeout_seconds=_PLAN_SECONDS,
            on_timeout="Rollback",
        )
        name = f"{job.metadata.name}-pool-{job.metadata.resource_version}"
        body = plan_manifests.manifest(job, name, spec, owner_reference(job))
        try:
            answer = await self.kube.create(SCALE_PLANS, job.metadata.namespace, body)
            self.store.update(SCALE_PLANS, answer)
        except AlreadyExists:
            log.debug("%s exists already", name)
        self.reconcile_job(key_of(job))
        return f"{job.metadata.name} {resize.size}: {resize.reason}"

    async def _write_status(self, pool: ElasticPool, status: ElasticPoolStatus) -> None:
        """Write what has changed in a pool's status."""
        before: dict[str, Any] = msgspec.to_builtins(pool.status)
        patch = patches.difference(before, msgspec.to_builtins(status))
        if not patch:
            return
        metadata = pool.metadata
        body = {"metadata": {"uid": metadata.uid}, "status": patch}
        try:
            answer = await self.kube.patch(
                ELASTIC_POOLS, metadata.namespace, metadata.name, body, subresource="status"
            )
        except (NotFound, Conflict):
            return  # it was deleted
        self.store.pools.refresh(msgspec.convert(answer, ElasticPool))
