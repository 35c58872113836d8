"""Shares the quota of a ClusterQueue of Kueue: what it has, who holds it, and who waits for it.

Kueue admits and holds quota; the pool only lets jobs give members, and take them back. So quota is
held until the pods have ended, whatever is decided here, and a wrong decision costs members only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from elasticjob_api.times import time_or_none

from elasticjob_operator.core.model.cluster_queue import ClusterQueue, LocalQueue, QueuedWorkload
from elasticjob_operator.core.model.workload import REPLACEMENT_FOR
from elasticjob_operator.core.sharing.elastic_pool import in_thousandths
from elasticjob_operator.core.sharing.facts import Memory
from elasticjob_operator.core.sharing.model import Amounts, Pool, PooledJob, Room, Sharing, total
from elasticjob_operator.core.sharing.share import share

_PATIENCE_SECONDS = 60.0
"""A Workload that is not admitted although there is quota for it does not wait for quota."""
_SET_ASIDE_SECONDS = 1800.0
"""How long nobody gives members for such a Workload again."""


def why_not_shared(name: str, queue: ClusterQueue | None) -> str:
    """Return why the quota of a queue cannot be shared, with the remedy; empty if it can."""
    if queue is None:
        return f"spec.clusterQueue: ClusterQueue {name!r} does not exist; create it"
    if not queue.has_one_flavor:
        return (
            f"spec.clusterQueue: {name!r} has several flavors for a resource, and which of them a "
            "Workload waits for is not known; name a ClusterQueue with one flavor for each"
        )
    if queue.spec.cohort_name:
        return (
            f"spec.clusterQueue: {name!r} is in cohort {queue.spec.cohort_name!r}, which can "
            "borrow what its jobs give; name a ClusterQueue without a cohort"
        )
    if queue.inactive:
        return f"ClusterQueue {name!r} admits nothing now: {queue.inactive}"
    return ""


@dataclass(frozen=True)
class QueueUse:
    """The use of a ClusterQueue.

    Attributes:
        resources: the names of what it has.
        nominal: how much of each.
        others: what Workloads hold that are not of the pool's jobs.
        waiting: the Workloads that lack quota, without those of the pool's running jobs.
    """

    resources: tuple[str, ...]
    nominal: Amounts
    others: Amounts
    waiting: tuple[QueuedWorkload, ...]


def use_of(
    queue: ClusterQueue,
    workloads: Iterable[QueuedWorkload],
    local_queues: Mapping[tuple[str, str], LocalQueue],
    running: Collection[str],
    known: Collection[str],
) -> QueueUse:
    """Return the use of a queue.

    Args:
        queue: the queue.
        workloads: those of all queues that have not finished.
        local_queues: by namespace and name.
        running: the UIDs of the pool's jobs that have quota of the queue.
        known: the UIDs of Workloads that have lacked quota before, and may say something else now.
    """
    name = queue.metadata.name
    held: dict[str, Decimal] = {}
    waiting = []
    reserved = []
    for each in workloads:
        if each.metadata.deletion_timestamp or not set(each.controllers).isdisjoint(running):
            continue
        given = each.reserved
        if given is not None:
            if given.cluster_queue == name:
                reserved.append(each)
            continue
        local = local_queues.get((each.metadata.namespace, each.spec.queue_name))
        if local is None or local.is_stopped or local.spec.cluster_queue != name:
            continue
        # A replacement lacks the difference only, and its job runs without it.
        is_known = each.spec.active and each.metadata.uid in known
        if (is_known or each.lacks_quota) and REPLACEMENT_FOR not in each.metadata.annotations:
            waiting.append(each)
    replaced = {each.metadata.annotations.get(REPLACEMENT_FOR) for each in reserved}
    for each in reserved:
        if f"{each.metadata.namespace}/{each.metadata.name}" not in replaced:
            for resource, amount in each.amounts().items():
                held[resource] = held.get(resource, Decimal(0)) + amount
    resources = tuple(sorted(queue.nominal))
    return QueueUse(
        resources,
        in_thousandths(queue.nominal, resources),
        in_thousandths(held, resources),
        tuple(waiting),
    )


def quota_of(
    workload: QueuedWorkload, role: str, resources: Sequence[str]
) -> tuple[int, Amounts, Amounts]:
    """Return the members of a role for which there is quota, what one takes, and all other pods."""
    others: dict[str, Decimal] = {}
    members = 0
    member: dict[str, Decimal] = {}
    for name, (count, amounts) in _with_pods(workload).items():
        if name == role:
            members = count
            member = amounts
            continue
        for resource, amount in amounts.items():
            others[resource] = others.get(resource, Decimal(0)) + amount * count
    return members, in_thousandths(member, resources), in_thousandths(others, resources)


def _with_pods(workload: QueuedWorkload) -> dict[str, tuple[int, dict[str, Decimal]]]:
    """Return the pods of each set and what one needs; a queue may count pods, too."""
    found = workload.amounts_for_one()
    return {name: (n, {"pods": Decimal(1)} | amounts) for name, (n, amounts) in found.items()}


def waiter(
    workload: QueuedWorkload,
    memory: Memory,
    resources: Sequence[str],
    namespace: str,
    weights: Mapping[str, float],
) -> PooledJob:
    """Return what the pool of a namespace must know of a Workload that waits.

    It is a job without members. One that may be admitted in part asks for the pods of that set, any
    other one for itself as a whole.
    """
    partial = next((each for each in workload.spec.pod_sets if each.min_count is not None), None)
    _, member, fixed = quota_of(workload, partial.name if partial else "", resources)
    if partial is None:
        member = fixed
        fixed = (0,) * len(resources)
    most = partial.count if partial else 1
    least = (partial.min_count if partial else None) or 1
    return PooledJob(
        name=_name(workload, namespace),
        size=0,
        held=0,
        desired=most,
        requested=most,
        wanted=most,
        minimum=min(least, most),
        member=member,
        fixed=fixed,
        priority=workload.spec.priority or 0,
        weight=weights.get(workload.priority_class, 1.0),
        since=time_or_none(workload.metadata.creation_timestamp) or 0.0,
        waits_since=memory.waits_since,
    )


def _name(workload: QueuedWorkload, namespace: str) -> str:
    """Return its name for texts that the users of a namespace read."""
    metadata = workload.metadata
    if metadata.namespace == namespace:
        return f"Workload {metadata.name}"
    return f"a Workload of another namespace ({metadata.uid[:8]})"


def is_set_aside(memory: Memory, now: float) -> bool:
    """Return whether nobody gives for a Workload, as quota was not what it lacked.

    After a while it counts again.
    """
    if memory.fits_since is None or now < memory.fits_since + _PATIENCE_SECONDS:
        return False
    if now < memory.fits_since + _PATIENCE_SECONDS + _SET_ASIDE_SECONDS:
        return True
    memory.fits_since = None
    return False


def remember_waiter(memory: Memory, found: PooledJob, sharing: Sharing, now: float) -> None:
    """Keep since when a Workload lacks quota, or is not admitted although it does not."""
    fits = bool(sharing.promised[found.name])
    memory.waits_since = None if fits else memory.waits_since or now
    memory.fits_since = (memory.fits_since or now) if fits else None


def share_queue(
    rules: Pool, use: QueueUse, jobs: Sequence[PooledJob], waiting: Sequence[PooledJob], now: float
) -> Sharing:
    """Return what the pool's running jobs give and get.

    While more is held than there is, which Kueue allows when a quota is lowered, and which it seems
    to be for a moment when one Workload replaces another, nothing changes.
    """
    capacity = tuple(
        nominal - others for nominal, others in zip(use.nominal, use.others, strict=True)
    )
    room = Room(capacity)
    for job in jobs:
        room.take(total(job, job.held))
    every = [*jobs, *waiting]
    if any(room.overdrawn):
        return Sharing({job.name: job.size for job in every})
    return share(replace(rules, capacity=capacity), every, now)
