"""Checks of a plan against the bounds of the job's size and the resource limits of all its members together."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.names import RESOURCE_GPU
from elasticjob_api.quantity import parse_quantity, requested
from elasticjob_api.scaleplan import ScalePlan

from elasticjob_operator.core.manifests.pods import with_resources
from elasticjob_operator.core.model.plan import Indices, PlanRefused, ResolvedPlan, member_resources


def check_size(job: ElasticJob, plan: ScalePlan, change: ResolvedPlan) -> None:
    """Refuse a plan that would make a role smaller than minReplicas or larger than maxReplicas.

    Raises:
        PlanRefused: it would.
    """
    for role, indices in change.targets.items():
        spec, before = job.spec.replica_specs[role], change.before[role]
        if indices == before:
            continue
        entry = plan.spec.replica_resource_specs.get(role)
        if entry is not None and entry.replicas is not None:
            prefix = f"spec.replicaResourceSpecs.{role}.replicas: "
        else:
            fields = ["spec.createPods"] * bool(indices - before) + ["spec.removePods"] * bool(before - indices)
            prefix = f"{', '.join(fields)}: {len(indices - before)} more and {len(before - indices)} fewer than "
            prefix += f"{len(before)}: "
        check_bounds(spec.min_replicas, spec.max_replicas, len(indices), role=role, prefix=prefix)


def check_bounds(min_replicas: int, max_replicas: int | None, size: int, *, role: str, prefix: str) -> None:
    """Refuse a size outside of a role's bounds.

    Raises:
        PlanRefused: it is outside.
    """
    if size < min_replicas:
        raise PlanRefused(f"{prefix}{size} members of role {role} would be below minReplicas {min_replicas}")
    if max_replicas is not None and size > max_replicas:
        raise PlanRefused(f"{prefix}{size} members of role {role} would be above maxReplicas {max_replicas}")


def check_resources(job: ElasticJob, change: ResolvedPlan) -> None:
    """Refuse a plan after which all members together would request more than the job's resource limits.

    Raises:
        PlanRefused: they would.
    """
    limits = job.spec.autoscaling.resource_limits
    for name, field, limit in (
        ("cpu", "cpu", limits.cpu),
        ("memory", "memory", limits.memory),
        (RESOURCE_GPU, "gpu", limits.gpu),
    ):
        if limit is None:
            continue
        before = _total_requested(job, change.before, name, None)
        after = _total_requested(job, change.targets, name, change)
        # A job that is over the limit already may still shrink.
        if after > parse_quantity(limit) and after > before:
            raise PlanRefused(
                f"spec.autoscaling.resourceLimits.{field}: all members together would request "
                f"{name} {after.normalize():f}, above the job's limit {limit}"
            )


def _total_requested(job: ElasticJob, indices: Indices, name: str, change: ResolvedPlan | None) -> Decimal:
    total = Decimal(0)
    for role, members in indices.items():
        first, *others = job.spec.replica_specs[role].template["spec"]["containers"]
        rest = requested(others, name)
        replacements = (
            {move.index: move.replacement for move in change.migrations if move.role == role} if change else {}
        )
        for index in members:
            wanted: dict[str, Any] = member_resources(job.status, role, index)
            if change is not None:
                wanted = {
                    **wanted,
                    **change.resources.get(role, {}),
                    **change.resources_by_index.get(role, {}).get(replacements.get(index, index), {}),
                }
            total += rest + requested([{"resources": with_resources(first.get("resources") or {}, wanted)}], name)
    return total
