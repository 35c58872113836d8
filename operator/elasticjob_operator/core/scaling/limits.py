"""Checks a plan against the bounds of each role's size and the job's resource limits."""

from __future__ import annotations

from decimal import Decimal

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_sizes import size_error
from elasticjob_api.quantity import parse_quantity, requested
from elasticjob_api.resources import bounded_resource
from elasticjob_api.scaleplan import ScalePlan

from elasticjob_operator.core.manifests.pods import with_resources
from elasticjob_operator.core.model.plan import (
    Indices,
    PlanRefused,
    Quantities,
    ResolvedPlan,
    member_resources,
)
from elasticjob_operator.core.scaling.resize import resources_of


def check_size(job: ElasticJob, plan: ScalePlan, change: ResolvedPlan) -> None:
    """Refuse a plan that would make a role smaller than minReplicas or larger than maxReplicas.

    Raises:
        PlanRefused: it would.
    """
    for role, indices in change.targets.items():
        before = change.before[role]
        if indices == before:
            continue
        entry = plan.spec.replica_resource_specs.get(role)
        if entry is not None and entry.replicas is not None:
            prefix = f"spec.replicaResourceSpecs.{role}.replicas: "
        else:
            added = len(indices - before)
            removed = len(before - indices)
            fields = ["spec.createPods"] if added else []
            fields += ["spec.removePods"] if removed else []
            prefix = f"{', '.join(fields)}: {added} more and {removed} fewer than {len(before)}: "
        check_bounds(job, role, len(indices), prefix=prefix)


def check_bounds(job: ElasticJob, role: str, size: int, *, prefix: str) -> None:
    """Refuse a size outside of a role's bounds.

    Raises:
        PlanRefused: it is outside.
    """
    if error := size_error(job, role, size):
        raise PlanRefused(f"{prefix}{error}")


def check_resources(job: ElasticJob, plan: ScalePlan, change: ResolvedPlan) -> None:
    """Refuse a plan after which all members together would exceed the job's resource limits.

    Raises:
        PlanRefused: they would.
    """
    for field, limit in job.spec.autoscaling.resource_limits.items():
        name = bounded_resource(field)
        before = _total_before(job, change.before, name)
        after = _total_after(job, plan, change, name)
        # A job that is over the limit already may still shrink.
        if after > parse_quantity(limit) and after > before:
            raise PlanRefused(
                f"spec.autoscaling.resourceLimits.{field}: all members together would request "
                f"{name} {after.normalize():f}, above the job's limit {limit}"
            )


def _total_before(job: ElasticJob, before: Indices, name: str) -> Decimal:
    return sum(
        (
            _requested(job, role, member_resources(job.status, role, index), name)
            for role, members in before.items()
            for index in members
        ),
        Decimal(0),
    )


def _total_after(job: ElasticJob, plan: ScalePlan, change: ResolvedPlan, name: str) -> Decimal:
    total = Decimal(0)
    replacements = {(move.role, move.index): move.replacement for move in change.migrations}
    for role, members in change.targets.items():
        for index in members:
            wanted = {
                **member_resources(job.status, role, index),
                **resources_of(job.status, plan, role, index),
                **change.resources_by_index.get(role, {}).get(
                    replacements.get((role, index), index), {}
                ),
            }
            total += _requested(job, role, wanted, name)
    return total


def _requested(job: ElasticJob, role: str, wanted: Quantities, name: str) -> Decimal:
    """Return the request of a member whose first container has these resources."""
    first, *others = job.spec.replica_specs[role].template["spec"]["containers"]
    first = {"resources": with_resources(first.get("resources") or {}, wanted)}
    return requested([first, *others], name)
