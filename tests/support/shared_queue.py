"""A ClusterQueue in memory: Kueue admits by priority and age, and elastic jobs share the quota.

The decisions are the operator's own; Workloads are read as Kueue writes them.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import msgspec
from elasticjob_api.times import format_time
from elasticjob_operator.core.model.cluster_queue import ClusterQueue, LocalQueue, QueuedWorkload
from elasticjob_operator.core.sharing import cluster_queue
from elasticjob_operator.core.sharing.facts import Memory
from elasticjob_operator.core.sharing.model import Pool, PooledJob, Sharing

QUEUE = "shared"
DRAIN_SECONDS = 20
STEP_SECONDS = 10
BEGIN = 1_800_000_000.0
LOCAL_QUEUES = {
    ("ns", "team"): msgspec.convert(
        {"metadata": {"name": "team"}, "spec": {"clusterQueue": QUEUE}}, LocalQueue
    )
}


def cluster_queue_of(cpu: int, **spec: Any) -> ClusterQueue:
    """Return a queue that has this many CPUs."""
    flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": cpu}]}
    found = {
        "metadata": {"name": QUEUE},
        "spec": {"resourceGroups": [{"flavors": [flavor]}], **spec},
        "status": {"conditions": [{"type": "Active", "status": "True"}]},
    }
    return msgspec.convert(found, ClusterQueue)


def workload_of(
    name: str,
    cpu: int,
    *,
    admitted: bool = False,
    message: str = "couldn't assign flavors: insufficient unused quota for cpu in flavor f, 1 more",
    created: float = BEGIN,
    namespace: str = "ns",
    metadata: Any = None,
    **spec: Any,
) -> QueuedWorkload:
    """Return a Workload of one pod as Kueue has considered it."""
    usage = {"cpu": str(cpu)}
    status: Any = {
        "conditions": [{"type": "QuotaReserved", "status": str(admitted), "message": message}],
        "resourceRequests": [{"name": "main", "resources": usage}],
    }
    if admitted:
        assignment = {"name": "main", "count": 1, "resourceUsage": usage}
        status["admission"] = {"clusterQueue": QUEUE, "podSetAssignments": [assignment]}
    found = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-of-{name}",
            "creationTimestamp": format_time(created),
            **(metadata or {}),
        },
        "spec": {"queueName": "team", "podSets": [{"name": "main", "count": 1}], **spec},
        "status": status,
    }
    return msgspec.convert(found, QueuedWorkload)


@dataclass
class Elastic:
    """A job of the pool, with a CPU for each member; the master takes none."""

    name: str
    wanted: int
    minimum: int = 1
    priority: int = 0
    desired: int = 0
    leaving: list[float] = field(default_factory=list)
    requested: int = 0
    requested_at: float = 0.0
    changed: float = -1e6

    def __post_init__(self) -> None:
        self.desired = self.desired or self.wanted

    @property
    def quota(self) -> int:
        """The members for which it has quota: those that leave included."""
        return self.desired + len(self.leaving)


@dataclass
class Foreign:
    """Anybody's Workload. A picky one is never admitted, for a reason other than quota."""

    name: str
    cpu: int
    priority: int = 0
    created: float = BEGIN
    is_picky: bool = False
    admitted: bool = False
    has_ended: bool = False


class QueueWorld:
    """The queue, its Workloads, and the operator's memory."""

    def __init__(self, pool: Pool, cpu: int, jobs: list[Elastic], others: list[Foreign]) -> None:
        self.pool = pool
        self.cpu = cpu
        self.jobs = {job.name: job for job in jobs}
        self.others = others
        self.now = BEGIN
        self.memories: dict[str, Memory] = {}
        self.plans: list[tuple[float, str, int]] = []

    @property
    def used(self) -> int:
        """The quota that is in use."""
        admitted = (each.cpu for each in self.others if each.admitted and not each.has_ended)
        return sum(job.quota for job in self.jobs.values()) + sum(admitted)

    def pending(self) -> list[Foreign]:
        """Return the Workloads that wait."""
        return [
            each
            for each in self.others
            if not (each.admitted or each.has_ended) and each.created <= self.now
        ]

    def admit(self) -> None:
        """Let Kueue admit whatever fits, by priority and age."""
        waiting: list[Foreign | Elastic] = [*self.pending()]
        waiting += [job for job in self.jobs.values() if job.requested > job.desired]

        def rank(each: Foreign | Elastic) -> tuple[int, float]:
            since = each.created if isinstance(each, Foreign) else each.requested_at
            return -each.priority, since

        for each in sorted(waiting, key=rank):
            free = self.cpu - self.used
            if isinstance(each, Foreign):
                each.admitted = each.cpu <= free and not each.is_picky
            elif each.requested - each.quota <= free:
                each.desired = each.requested
                each.changed = self.now
        assert self.used <= self.cpu

    def decide(self) -> Sharing:
        """Decide as the operator does, and carry it out."""
        free = self.cpu - self.used
        workloads = [
            workload_of(
                each.name,
                each.cpu,
                admitted=each.admitted,
                created=each.created,
                priority=each.priority,
                **({} if each.cpu > free else {"message": "other"}),
            )
            for each in self.others
            if not each.has_ended and each.created <= self.now
        ]
        queue = cluster_queue_of(self.cpu)
        use = cluster_queue.use_of(queue, workloads, LOCAL_QUEUES, (), self.memories.keys())
        uids = {each.metadata.uid for each in use.waiting}
        self.memories = {uid: self.memories.get(uid, Memory()) for uid in uids}
        facts = {
            each.metadata.uid: cluster_queue.waiter(
                each, self.memories[each.metadata.uid], use.resources, "ns", {}
            )
            for each in use.waiting
            if not cluster_queue.is_set_aside(self.memories[each.metadata.uid], self.now)
        }
        jobs = [self._fact(job) for job in self.jobs.values()]
        pool = dataclasses.replace(self.pool, capacity=use.nominal)
        sharing = cluster_queue.share_queue(pool, use, jobs, list(facts.values()), self.now)
        for uid, fact in facts.items():
            cluster_queue.remember_waiter(self.memories[uid], fact, sharing, self.now)
        for job in self.jobs.values():
            if job.requested > max(job.desired, sharing.promised[job.name]):
                job.requested = 0
        for resize in sharing.resizes:
            self._resize(self.jobs[resize.job], resize.size)
        return sharing

    def _fact(self, job: Elastic) -> PooledJob:
        return PooledJob(
            name=job.name,
            size=job.desired,
            held=job.quota,
            desired=job.desired,
            requested=max(job.requested, job.desired),
            wanted=job.wanted,
            minimum=job.minimum,
            member=(1000,),
            fixed=(0,),
            priority=job.priority,
            changed=job.changed,
            is_kept=bool(job.leaving),
        )

    def _resize(self, job: Elastic, size: int) -> None:
        self.plans.append((self.now, job.name, size))
        if size > job.desired:
            job.requested = size
            job.requested_at = self.now
            return
        assert size >= job.minimum
        job.leaving += [self.now + DRAIN_SECONDS] * (job.desired - size)
        job.desired = size
        job.requested = 0

    def run(self, seconds: float) -> None:
        """Let operator and Kueue work for some time."""
        end = self.now + seconds
        while self.now < end:
            self.admit()
            self.decide()
            self.now += STEP_SECONDS
            for job in self.jobs.values():
                before = len(job.leaving)
                job.leaving = [due for due in job.leaving if due > self.now]
                if before and not job.leaving:
                    job.changed = self.now
