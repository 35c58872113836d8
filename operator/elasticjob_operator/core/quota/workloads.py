"""Keeps the Workloads of a job that Kueue queues in line with its pods.

A job has one admitted Workload. While the job needs more or other pods than that, it has one more
that waits and names the one it replaces. A Kueue with elastic jobs needs quota for the difference
only, any other Kueue for both for a moment. The pods continue until the new Workload is admitted;
then the old one is deleted. A job may be admitted with fewer pods than it asks for, and then waits
in this way for the others.

Quota that is no longer needed is given back by `reclaimablePods`, because Kueue does not let an
admitted Workload shrink. If Kueue is removed, nothing changes: pods end because a Workload is not
admitted, never because none exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob_api.job_sizes import has_started
from elasticjob_api.pooled_jobs import elastic_role
from elasticjob_api.times import format_time

from elasticjob_operator.core.model.actions import (
    Action,
    CreateWorkload,
    DeleteWorkload,
    PatchWorkload,
)
from elasticjob_operator.core.model.observed import Defaults, Observed, owner_reference
from elasticjob_operator.core.model.workload import (
    ELASTIC,
    REPLACEMENT_FOR,
    Quota,
    Workload,
    WorkloadCondition,
    workload_name,
)
from elasticjob_operator.core.quota.demand import (
    Demand,
    at_least,
    demand_of,
    error_of,
    is_for,
    least_counts,
    pod_sets,
    same_counts,
)
from elasticjob_operator.core.quota.waiting import seconds_until_replaced
from elasticjob_operator.core.scaling.scaling_result import ScalingResult

WORKLOAD_VERSION = "kueue.x-k8s.io/v1beta2"
_REQUEUED_BY_JOB = ("Preempted", "NodeFailures")
"""Reasons of an eviction after which the job requeues its Workload; after others Kueue does it."""


def workloads_while_active(
    observed: Observed,
    status: ElasticJobStatus,
    scaling: ScalingResult,
    now: float,
    defaults: Defaults,
) -> list[Action]:
    """Return the actions on the quota of an active job; none while the next plan is not known."""
    if observed.quota is None or (scaling.actions and scaling.planned is None):
        return []
    demand = demand_of(
        observed, status, defaults, plan=scaling.planned, overrides=scaling.overrides
    )
    return _keep_workloads(observed, demand, now, running=has_started(status))


def workloads_at_rest(
    observed: Observed, status: ElasticJobStatus, now: float, defaults: Defaults
) -> list[Action]:
    """Return the actions on the quota of a job whose pods must end, or that waits for quota."""
    return _keep_workloads(observed, demand_of(observed, status, defaults), now, running=False)


def _keep_workloads(
    observed: Observed, demand: Demand, now: float, *, running: bool
) -> list[Action]:
    """Return the actions that give the job the Workloads that it needs now.

    Args:
        observed: the job, its pods and its Workloads.
        demand: the job's demand, with the plan that waits for quota.
        now: seconds since the epoch.
        running: whether enough of its members are ready.
    """
    quota = observed.quota
    if quota is None:
        return []
    if not quota.queue:
        return delete_workloads(quota)
    if error_of(observed.job) or (quota.live and seconds_until_replaced(observed, now) is not None):
        return []
    current = quota.current
    is_short = (
        current is None or not is_for(current, demand) or current.spec.queue_name != quota.queue
    )
    asked = demand if current is None else at_least(demand, current.counts())
    # Not of a replacement: Kueue would count its difference by its whole size.
    least = least_counts(asked, elastic_role(observed.job)) if current is None else {}
    waiting = _to_keep(quota, asked, least, bool(observed.pods)) if is_short else None
    kept = (current, waiting)
    actions: list[Action] = [
        _delete(each) for each in quota.workloads if each not in kept and not _is_ending(each)
    ]
    if current is not None:
        actions += _report(observed, current, demand, now, running=running)
    if waiting is not None and waiting.evicted and waiting.reserved and not observed.pods:
        actions.append(_give_back(waiting, now))
    if is_short and waiting is None:
        actions.append(CreateWorkload(_body(observed, quota, asked, least)))
    return actions


def delete_workloads(quota: Quota) -> list[Action]:
    """Return the deletion of all Workloads of a job that is no longer queued."""
    return [_delete(each) for each in quota.workloads if not _is_ending(each)]


def finish_workloads(observed: Observed, phase: str, message: str, now: float) -> list[Action]:
    """Return the write that reports the end of the job to Kueue, which frees its quota."""
    quota = observed.quota
    if quota is None or not quota.live:
        return []
    last = quota.current or quota.live[-1]
    finished = _condition("Finished", True, phase, message or f"the job has {phase}", last, now)
    others: list[Action] = [_delete(each) for each in quota.live if each is not last]
    return [_patch(last, [finished]), *others]


def _to_keep(
    quota: Quota, demand: Demand, least: Mapping[str, int], has_pods: bool
) -> Workload | None:
    """Return the Workload that may become the next current one.

    It waits, or its pods are ending.
    """
    current = quota.current
    for each in reversed(quota.live):
        if current is not None and each.number <= current.number:
            return None
        if current is None and each.reserved and (each.evicted or has_pods):
            return each  # its quota is given back when its pods have ended
        is_wanted = (
            is_for(each, demand)
            and same_counts(each, demand)
            and each.spec.queue_name == quota.queue
            and not _is_outdated(each, least)
        )
        if is_wanted or not each.spec.active:  # a user has deactivated it, so it stays
            return each
    return None


def _is_outdated(workload: Workload, least: Mapping[str, int]) -> bool:
    """Return whether a Workload that waits could start the job with other numbers of pods.

    It was made as the replacement of another one, or the job was edited. A Kueue without partial
    admission removes the numbers.
    """
    if REPLACEMENT_FOR in workload.metadata.annotations:
        return bool(least)
    return any(
        each.min_count not in (None, least.get(each.name)) for each in workload.spec.pod_sets
    )


def _report(
    observed: Observed, current: Workload, demand: Demand, now: float, *, running: bool
) -> list[Action]:
    """Return the write of the number of pods that need no quota, and of whether the job runs."""
    counts = current.counts()
    before = current.reclaimed()
    after = dict(before)
    for each in current.spec.pod_sets:
        needed = demand[each.name].count if each.name in demand else 0
        kept = max(needed, observed.pods_of(each.name).live_count)
        after[each.name] = before.get(each.name, 0)
        if kept < counts[each.name]:
            after[each.name] = each.count - kept
    fields: dict[str, Any] = {}
    if any(number != before.get(name, 0) for name, number in after.items()):
        fields["reclaimablePods"] = [
            {"name": name, "count": number} for name, number in after.items()
        ]
    ready = current.condition("PodsReady")
    was_ready = ready is not None and ready.status == "True"
    changed = []
    if ready is None or was_ready != running:
        has_run = ready is not None and (was_ready or ready.reason == "WaitForRecovery")
        reason = "Started" if running else "WaitForRecovery" if has_run else "WaitForStart"
        message = "enough members are ready" if running else "too few members are ready"
        changed = [_condition("PodsReady", running, reason, message, current, now)]
    return [_patch(current, changed, **fields)] if fields or changed else []


def _give_back(workload: Workload, now: float) -> PatchWorkload:
    """Return the write that gives the quota of an evicted Workload back and requeues it."""
    evicted = workload.condition("Evicted")
    reason, message = (evicted.reason, evicted.message) if evicted is not None else ("Evicted", "")
    changed = [
        _condition("QuotaReserved", False, "Pending", message, workload, now),
        _condition("Admitted", False, "NoReservation", "the pods have ended", workload, now),
        _condition(
            "Requeued", reason in _REQUEUED_BY_JOB, reason or "Evicted", message, workload, now
        ),
    ]
    return _patch(workload, changed, admission=None)


def _body(
    observed: Observed, quota: Quota, demand: Demand, least: Mapping[str, int]
) -> dict[str, Any]:
    job = observed.job
    current = quota.current
    number = max((each.number for each in quota.workloads), default=-1) + 1
    # Kueue refuses partial admission of an elastic one, and lets an elastic one replace any.
    annotations = {} if least else {ELASTIC: "true"}
    # Kueue compares them set by set.
    if current is not None and [each.name for each in current.spec.pod_sets] == list(demand):
        annotations[REPLACEMENT_FOR] = f"{job.metadata.namespace}/{current.metadata.name}"
    return {
        "apiVersion": WORKLOAD_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": workload_name(job, number),
            "namespace": job.metadata.namespace,
            "labels": {
                names.LABEL_JOB_NAME: job.metadata.name,
                names.LABEL_JOB_UID: job.metadata.uid,
            },
            "annotations": annotations,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {"queueName": quota.queue, "podSets": pod_sets(demand, least)},
    }


def _condition(
    kind: str, holds: bool, reason: str, message: str, workload: Workload, now: float
) -> WorkloadCondition:
    old = workload.condition(kind)
    since = (
        old.last_transition_time
        if old is not None and old.status == str(holds)
        else format_time(now)
    )
    return WorkloadCondition(
        type=kind,
        status=str(holds),
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=workload.metadata.generation,
    )


def _patch(
    workload: Workload, changed: Sequence[WorkloadCondition], **fields: Any
) -> PatchWorkload:
    """Return the write of these conditions, with the existing ones, and of other status fields."""
    kinds = {each.type for each in changed}
    status = dict(fields)
    if changed:
        conditions = [
            *(each for each in workload.status.conditions if each.type not in kinds),
            *changed,
        ]
        # Kubernetes requires the message of a condition, also an empty one.
        status["conditions"] = [
            {"reason": "", "message": "", **msgspec.to_builtins(each)} for each in conditions
        ]
    metadata = workload.metadata
    return PatchWorkload(metadata.name, metadata.uid, metadata.resource_version, status)


def _delete(workload: Workload) -> DeleteWorkload:
    return DeleteWorkload(workload.metadata.name, workload.metadata.uid)


def _is_ending(workload: Workload) -> bool:
    return workload.metadata.deletion_timestamp is not None


KUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"


@dataclass(frozen=True)
class PriorityChoice:
    """A class of priorities, and the field by which the user has chosen it."""

    kind: str
    name: str
    field: str

    @property
    def group(self) -> str:
        """Its API group."""
        return "kueue.x-k8s.io" if self.kind == "WorkloadPriorityClass" else "scheduling.k8s.io"


def priority_class(job: ElasticJob, workload: Mapping[str, Any]) -> PriorityChoice | None:
    """Return the class that gives the Workload its priority; None for a job without one."""
    if name := job.metadata.labels.get(KUEUE_PRIORITY):
        return PriorityChoice("WorkloadPriorityClass", name, f"metadata.labels[{KUEUE_PRIORITY}]")
    for pod_set in workload["spec"]["podSets"]:
        if name := pod_set["template"]["spec"].get("priorityClassName"):
            return PriorityChoice("PriorityClass", name, f"priorityClassName of {pod_set['name']}")
    return None


def with_priority(
    workload: Mapping[str, Any], chosen: PriorityChoice, value: int
) -> dict[str, Any]:
    """Return the manifest of a Workload with the class and its value."""
    reference = {"group": chosen.group, "kind": chosen.kind, "name": chosen.name}
    return {
        **workload,
        "spec": {**workload["spec"], "priorityClassRef": reference, "priority": value},
    }
