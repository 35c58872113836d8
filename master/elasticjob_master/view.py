"""Between custom resources and the controller's values. Pure, but for nobody else's use."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ReplicaSpec
from elasticjob_api.quantity import parse_quantity
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_PLANS

from elasticjob_master.config import Config
from elasticjob_master.core import progress as core
from elasticjob_master.core.autoscale import Bounds, Decision
from elasticjob_master.core.rendezvous import RoleSize
from elasticjob_master.core.resources import requests
from elasticjob_master.scaler import Scaling

_LONGEST_REASON = 1024
_MOST = 10_000


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


def scaling(job: ElasticJob, *, plan_unfinished: bool) -> Scaling | None:
    """Return how the auto-scaler may scale; None when it has no role to scale."""
    wanted = job.spec.autoscaling
    spec = job.spec.replica_specs.get(wanted.role)
    if spec is None:
        return None
    return Scaling(
        role=wanted.role,
        desired=desired(job, wanted.role),
        bounds=bounds(job, wanted.role),
        enabled=wanted.enabled and spec.auto_scale,
        objective=wanted.objective.min_marginal_efficiency,
        cooldown=float(wanted.cooldown_seconds),
        plan_unfinished=plan_unfinished or job.status.current_plan is not None,
    )


def bounds(job: ElasticJob, role: str) -> Bounds:
    """Return the sizes the role may have, and what sets the upper one."""
    spec = job.spec.replica_specs[role]
    maximum, limit = (spec.max_replicas, f"{role}.maxReplicas")
    if maximum is None:
        maximum, limit = max(spec.replicas, desired(job, role)), f"{role}.replicas, as maxReplicas is not set,"
    limits = job.spec.autoscaling.resource_limits
    for resource, value in (("cpu", limits.cpu), ("memory", limits.memory), ("nvidia.com/gpu", limits.gpu)):
        possible = _possible(job, role, resource, value)
        if possible is not None and possible < maximum:
            maximum, limit = possible, f"autoscaling.resourceLimits ({resource} {value})"
    return Bounds(max(1, spec.min_replicas), maximum, limit)


def progress(source: core.Progress, now: float) -> dict[str, Any] | None:
    """Return `status.progress`, or None before the first step is reported."""
    if source.reported_at is None:
        return None
    rate, eta = source.samples_per_second(now), source.eta_seconds(now)
    told: dict[str, Any] = {
        "step": source.step,
        "lastReportTime": _time(source.reported_at),
        "metrics": {name: _rounded(value, 6) for name, value in source.metrics.items()},
        "steps": core.people_steps(source.step, source.total_steps),
    }
    if rate > 0:  # between two worlds, and after the end, there is none
        told |= {"samplesPerSecond": _rounded(rate), "rate": core.people_rate(rate)}
    if source.total_steps:
        told["totalSteps"] = source.total_steps
    if eta is not None:
        told["etaSeconds"] = math.ceil(min(eta, 1e9))
    return told


def plan(config: Config, number: int, role: str, decision: Decision) -> dict[str, Any]:
    """Return the ScalePlan of a decision."""
    owner = {
        "apiVersion": ELASTIC_JOBS.api_version,
        "kind": ELASTIC_JOBS.kind,
        "name": config.job_name,
        "uid": config.job_uid,
    }
    return {
        "apiVersion": SCALE_PLANS.api_version,
        "kind": SCALE_PLANS.kind,
        "metadata": {
            "name": f"{config.job_name}-auto-{number}",
            "labels": {names.LABEL_JOB_NAME: config.job_name, names.LABEL_JOB_UID: config.job_uid},
            "ownerReferences": [owner],
        },
        "spec": {
            "jobName": config.job_name,
            "source": "Auto",
            "reason": decision.reason[:_LONGEST_REASON],
            "replicaResourceSpecs": {role: {"replicas": decision.size}},
        },
    }


def _possible(job: ElasticJob, role: str, resource: str, limit: int | str | None) -> int | None:
    """Return how many members of a role a limit over all roles allows; None when it says nothing about this role."""
    if limit is None:
        return None
    each = _request(job, role, resource)
    if each <= 0:
        return None
    others = sum(
        (_request(job, r, resource) * desired(job, r) for r in job.spec.replica_specs if r != role), Decimal(0)
    )
    return max(0, min(_MOST, int((parse_quantity(limit) - others) // each)))


def _request(job: ElasticJob, role: str, resource: str) -> Decimal:
    """Return what one member requests: as a plan has set it, else as its template says."""
    status = job.status.replica_statuses.get(role)
    planned = status.resources.get(resource) if status is not None else None
    if planned is not None:
        return parse_quantity(planned)
    return requests(job.spec.replica_specs[role].template).get(resource, Decimal(0))


def _rounded(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits}g}")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
