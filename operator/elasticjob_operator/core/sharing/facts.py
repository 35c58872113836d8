"""Reads from a job and its objects what its pool must know of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.indices import parse_indices
from elasticjob_api.job_status import ENDED
from elasticjob_api.pod_requests import pod_requests, role_requests
from elasticjob_api.pooled_jobs import KUEUE_QUEUE, elastic_role
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.times import time_or_none

from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.scaling.plan_manifests import spec_plan_name
from elasticjob_operator.core.scaling.waiting_queue import (
    active_plan,
    first_item,
    waiting_items,
    without_superseded,
)
from elasticjob_operator.core.sharing.model import NEARLY_DONE_SECONDS, Amounts, PooledJob

_GROW_AGAIN_SECONDS = 1800.0
"""The pause after the nodes had no place for members, although the pool had room for them."""


@dataclass
class Memory:
    """What the leader of a pool remembers of a job; a new leader begins without it.

    Attributes:
        promised: the members for which the job may have pods.
        suspended: for whom its pods must end; empty if they may run, or once it has room again.
        waits_since: since when it has had less than it should get.
        ends_at: the end that it announced when it was first near.
        work: the samples that are left, by the least that it has said: a job that says the same at
            any size would otherwise seem to need less whenever it is small.
        rates: samples per second as seen at different sizes.
        fits_since: of a Workload that waits, since when there has been quota for it.
        requests: what a member and the rest of the job take, and for which version of the job.
    """

    promised: int | None = None
    suspended: str = ""
    waits_since: float | None = None
    ends_at: float | None = None
    work: float | None = None
    rates: dict[int, float] = field(default_factory=dict)
    fits_since: float | None = None
    requests: tuple[object, tuple[Amounts, Amounts]] | None = None


def shares(job: ElasticJob) -> bool:
    """Return whether a pool decides about a job, and not Kueue, another controller or its end."""
    return may_change(job) and KUEUE_QUEUE not in job.metadata.labels


def may_change(job: ElasticJob) -> bool:
    """Return whether a pool may change the size of a job, also of one that has quota of Kueue."""
    policy = job.spec.run_policy
    return (
        job.status.phase not in ENDED
        and job.metadata.deletion_timestamp is None
        and policy.managed_by in (None, names.MANAGED_BY)
        and not (policy.suspend or policy.stop)
    )


def priority_class(job: ElasticJob) -> str:
    """Return the priority class of the elastic role's pods; empty for none."""
    spec = job.spec.replica_specs[elastic_role(job)].template.get("spec", {})
    policy = job.spec.run_policy.scheduling_policy
    return policy.priority_class_name or str(spec.get("priorityClassName") or "")


def fixed_requests(job: ElasticJob) -> dict[str, Decimal]:
    """Return the requests of the master and of all members of the other roles."""
    total = pod_requests({"containers": [{"resources": job.spec.master.resources}]})
    total["pods"] = Decimal(1)
    for role, spec in job.spec.replica_specs.items():
        if role == elastic_role(job):
            continue
        replica = job.status.replica_statuses.get(role)
        number = spec.size if replica is None else replica.desired
        for name, amount in {"pods": Decimal(1), **role_requests(job, role)}.items():
            total[name] = total.get(name, Decimal(0)) + amount * number
    return total


def fact(
    observed: Observed,
    memory: Memory,
    *,
    member: Amounts,
    fixed: Amounts,
    priority: int,
    weight: float,
    quota: int | None = None,
) -> PooledJob:
    """Return what a pool must know of a job, with its pods, plans and requests.

    `quota`: the members for which it has quota of Kueue; None for a job without a queue.
    """
    job = observed.job
    plans = observed.plans
    role = elastic_role(job)
    spec = job.spec.replica_specs[role]
    replica = job.status.replica_statuses.get(role)
    desired = spec.size if replica is None else replica.desired
    live = observed.pods.of(role).live_count
    queue = _queue(role, observed, desired)
    # A plan that has begun had room, also if the job's status does not show its size yet.
    desired = max(desired, queue.size or 0)
    promised = live if memory.promised is None else memory.promised
    promised = min(promised if quota is None else quota, max(desired, queue.requested))
    # Kueue gives quota for a plan that waits, before the plan begins.
    given = desired if quota is None else max(desired, queue.requested)
    asked = max(queue.requested, (replica.asked if replica else None) or 0)
    waits_for_all = job.spec.run_policy.start_policy == "AllReady"
    return PooledJob(
        name=job.metadata.name,
        size=min(given if queue.size is None else queue.size, promised),
        # The master's pod is the last to end, and takes room until then.
        held=max(live, promised, int(observed.pods.live_count > 0)) if quota is None else quota,
        desired=desired,
        requested=queue.requested,
        wanted=asked if spec.max_replicas is None else min(asked, spec.max_replicas),
        minimum=max(1, desired if waits_for_all and not live else spec.min_replicas),
        member=member,
        fixed=fixed,
        step=job.spec.autoscaling.multiple_of,
        priority=priority,
        weight=weight,
        since=time_or_none(job.metadata.creation_timestamp) or 0.0,
        waits_since=memory.waits_since,
        changed=_last_change(job, plans),
        is_kept=queue.size is not None
        or not (shares(job) if quota is None else may_change(job))
        or bool(live and desired != spec.size and _awaits_plan(job, plans))
        or bool(promised and not live),
        may_grow_at=_may_grow_at(plans),
        ends_at=memory.ends_at,
        work=memory.work if memory.rates else None,
        rates=memory.rates,
    )


@dataclass(frozen=True)
class _Queue:
    """What a job's plans will do: the size that one leads to, and the size for which one waits."""

    requested: int
    size: int | None = None


def _queue(role: str, observed: Observed, desired: int) -> _Queue:
    active = active_plan(observed)
    if active is not None:
        text = active.status.targets.get(role)
        return _Queue(desired, desired if text is None else len(parse_indices(text)))
    waiting = without_superseded(waiting_items(observed))
    for plan in waiting:
        if isinstance(plan, ScalePlan) and plan.spec.source == "Pool":
            size = _target(role, plan, desired)
            if size < desired:  # it passes others that wait for room
                return _Queue(desired, size)
    first = first_item(waiting, observed.job.status.current_plan) if waiting else None
    if not isinstance(first, ScalePlan):
        return _Queue(desired)
    size = _target(role, first, desired)
    return _Queue(size) if size > desired else _Queue(desired, size)


def _target(role: str, plan: ScalePlan, desired: int) -> int:
    """Return the size to which a plan that waits leads."""
    entry = plan.spec.replica_resource_specs.get(role)
    if entry is not None and entry.replicas is not None:
        return entry.replicas
    added = sum(each.role == role for each in plan.spec.create_pods)
    return desired + added - len(plan.spec.remove_pods)


def waiting_in_vain(observed: Observed, promised: int) -> list[ScalePlan]:
    """Return the pool's own plans that wait for more members than it would give now."""
    role = elastic_role(observed.job)
    replica = observed.job.status.replica_statuses.get(role)
    desired = 0 if replica is None else replica.desired
    return [
        plan
        for plan in waiting_items(observed)
        if isinstance(plan, ScalePlan)
        and plan.spec.source == "Pool"
        and _target(role, plan, desired) > max(desired, promised)
    ]


def _awaits_plan(job: ElasticJob, plans: Sequence[ScalePlan]) -> bool:
    """Return whether an edit of the job's size has no plan yet.

    One that has ended, as a refused one, or that waits for room, keeps no member from others.
    """
    name = spec_plan_name(job)
    return all(plan.metadata.name != name for plan in plans)


def _last_change(job: ElasticJob, plans: Sequence[ScalePlan]) -> float:
    times = [plan.status.completion_time or "" for plan in plans if plan.status.start_time]
    latest = max((*times, job.status.start_time or ""), default="")
    return time_or_none(latest) or 0.0


def _may_grow_at(plans: Sequence[ScalePlan]) -> float:
    """Return when a job may be enlarged again after a plan for which nodes were missing."""
    ended = [plan for plan in plans if plan.spec.source == "Pool" and plan.status.completion_time]
    if not ended:
        return 0.0
    last = max(ended, key=lambda plan: plan.status.completion_time or "")
    if last.status.phase not in ("Failed", "PartiallySucceeded"):
        return 0.0
    return (time_or_none(last.status.completion_time) or 0.0) + _GROW_AGAIN_SECONDS


def remember(memory: Memory, job: ElasticJob, found: PooledJob, ready: int, now: float) -> None:
    """Keep what a job shows now: its throughput at its size, and its end when it is near."""
    progress = job.status.progress
    if progress is None:
        return
    left = progress.eta_seconds
    if left is not None and left <= NEARLY_DONE_SECONDS and memory.ends_at is None:
        memory.ends_at = now + left
    rate = progress.samples_per_second
    if left is not None and rate:
        memory.work = min(left * rate, left * rate if memory.work is None else memory.work)
    if rate and not found.is_kept and found.size == found.desired == ready:
        known = memory.rates.get(ready, rate)
        memory.rates[ready] = 0.7 * known + 0.3 * rate
