"""Between custom resources and the controller's values: sizes, who leaves, progress and plans. Pure."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from elasticjob_api.elasticjob import ElasticJob, ReplicaSpec
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_api.times import format_time, parse_time

from elasticjob_master.core import progress as core
from elasticjob_master.core.plan_summary import MOST_PLANS, PlanSummary
from elasticjob_master.core.rendezvous.rules import RoleSize

_MOST_PODS = 100
_LONGEST_PROBLEM = 1024


def sizes(job: ElasticJob) -> dict[str, RoleSize]:
    """Return the roles' sizes: the least a world needs, and what the operator holds each role to."""
    return {
        role: RoleSize(min(spec.min_replicas, desired(job, role)), desired(job, role))
        for role, spec in job.spec.replica_specs.items()
    }


def desired(job: ElasticJob, role: str) -> int:
    """Return the members a role shall have: the operator's word, before it has one the spec's."""
    status = job.status.replica_statuses.get(role)
    if status is None or (status.desired == 0 and status.highest_index < 0):
        return job.spec.replica_specs[role].replicas
    return status.desired


def drain_seconds(job: ElasticJob, role: str) -> float:
    """Return how long a leaving member of a role may take."""
    return float(job.spec.replica_specs.get(role, ReplicaSpec(template={})).drain_seconds)


def draining(job: ElasticJob, unfinished: Iterable[ScalePlan]) -> dict[str, float]:
    """Return the pods that plans want to leave, with the seconds each has."""
    pods: dict[str, float] = {}
    for plan in unfinished:
        for pod in plan.status.draining_pods:
            roles = [role for role in job.spec.replica_specs if pod.startswith(f"{job.metadata.name}-{role}-")]
            role = max(roles, key=len, default="")  # one role's name may begin with another's
            given = plan.spec.drain_seconds
            pods[pod] = drain_seconds(job, role) if given is None else float(given)
    return pods


def standing_by(unfinished: Iterable[ScalePlan]) -> frozenset[tuple[str, int]]:
    """Return role and index of the members that replace others, as long as those are at work."""
    moves = (move for plan in unfinished for move in plan.status.migrations)
    return frozenset((move.role, move.replacement) for move in moves if move.phase == "Starting")


def progress(
    source: core.Progress,
    now: float,
    *,
    stalled_since: float | None = None,
    stragglers: Sequence[str] = (),
    unfit: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return `status.progress`; before the first step is reported there is little in it, or nothing."""
    found: dict[str, Any] = {}
    if stalled_since is not None:
        found["stalledSince"] = format_time(stalled_since)
    if stragglers:
        found["stragglers"] = list(stragglers)[:_MOST_PODS]
    if unfit:
        found["unfit"] = {pod: unfit[pod][:_LONGEST_PROBLEM] for pod in sorted(unfit)[:_MOST_PODS]}
    if source.reported_at is None:
        return found
    rate, eta = source.samples_per_second(now), source.eta_seconds(now)
    told: dict[str, Any] = {
        "step": source.step,
        "lastReportTime": format_time(source.reported_at),
        "metrics": {name: _rounded(value, 6) for name, value in source.metrics.items()},
        "steps": core.format_steps(source.step, source.total_steps),
    }
    if rate > 0:  # between two worlds, and after the end, there is none
        told |= {"samplesPerSecond": _rounded(rate), "rate": core.format_rate(rate)}
    if source.total_steps:
        told["totalSteps"] = source.total_steps
    if eta is not None:
        told["etaSeconds"] = math.ceil(min(eta, 1e9))
    return told | found


def plans(known: Iterable[ScalePlan]) -> list[PlanSummary]:
    """Return the plans as they are told, oldest first: if there are too many, the oldest finished ones are left out."""
    latest = heapq.nlargest(
        MOST_PLANS,
        known,
        key=lambda plan: (
            plan.status.phase not in FINISHED,
            plan.metadata.creation_timestamp or "",
            plan.metadata.name,
        ),
    )
    told = [
        PlanSummary(
            name=each.metadata.name,
            source=each.spec.source,
            phase=each.status.phase or "Pending",
            reason=each.spec.reason,
            message=each.status.message,
            created=_seconds(each.metadata.creation_timestamp),
            completed=_seconds(each.status.completion_time),
        )
        for each in latest
    ]
    return sorted(told, key=lambda plan: (plan.created, plan.name))


def _rounded(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits}g}")


def _seconds(time: str | None) -> float:
    return parse_time(time) if time else 0.0
