"""Checks a plan against the bounds of each role's size and the job's resource limits."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_sizes import size_error
from elasticjob_api.pod_requests import requests_by_plan
from elasticjob_api.quantity import parse_quantity
from elasticjob_api.resources import bounded_resource
from elasticjob_api.scaleplan import ScalePlan

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
    limits = job.spec.autoscaling.resource_limits
    if not limits:
        return
    totals_before = _totals(job, _sizes_before(job, change.before))
    totals_after = _totals(job, _sizes_after(job, plan, change))
    for field, limit in limits.items():
        name = bounded_resource(field)
        before = totals_before.get(name, Decimal(0))
        after = totals_after.get(name, Decimal(0))
        # A job that is over the limit already may still shrink.
        if after > parse_quantity(limit) and after > before:
            raise PlanRefused(
                f"spec.autoscaling.resourceLimits.{field}: all members together would request "
                f"{name} {after.normalize():f}, above the job's limit {limit}"
            )


Sizes = dict[str, Counter[tuple[tuple[str, int | str], ...]]]
"""By role, the different resources of its members, and how many members have them."""


def _sizes_before(job: ElasticJob, before: Indices) -> Sizes:
    return {
        role: Counter(tuple(member_resources(job.status, role, index).items()) for index in members)
        for role, members in before.items()
    }


def _sizes_after(job: ElasticJob, plan: ScalePlan, change: ResolvedPlan) -> Sizes:
    replacements = {(move.role, move.index): move.replacement for move in change.migrations}

    def wanted(role: str, index: int) -> Quantities:
        return {
            **member_resources(job.status, role, index),
            **resources_of(job.status, plan, role, index),
            **change.resources_by_index.get(role, {}).get(
                replacements.get((role, index), index), {}
            ),
        }

    return {
        role: Counter(tuple(wanted(role, index).items()) for index in members)
        for role, members in change.targets.items()
    }


def _totals(job: ElasticJob, sizes: Sizes) -> dict[str, Decimal]:
    """Return the requests of all members; each container of a role is read once."""
    totals: dict[str, Decimal] = {}
    for role, numbers in sizes.items():
        requests = requests_by_plan(job.spec.replica_specs[role].template["spec"])
        for resources, number in numbers.items():
            for name, amount in requests(dict(resources)).items():
                totals[name] = totals.get(name, Decimal(0)) + number * amount
    return totals
