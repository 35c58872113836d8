"""How the job may be scaled, as the ElasticJob says. Pure."""

from __future__ import annotations

from decimal import Decimal

from elasticjob_api import names
from elasticjob_api.elasticjob import DEFAULT_MAX_MEMORY_FACTOR, MAX_REPLICAS, ElasticJob, ReplicaStatus
from elasticjob_api.indices import read_indices
from elasticjob_api.quantity import parse_quantity

from elasticjob_master.cluster.job_spec import desired
from elasticjob_master.core.autoscale.container_resources import pod_requests, training_container_resources
from elasticjob_master.core.autoscale.decision import Bounds
from elasticjob_master.core.autoscale.job_scaling import JobScaling, RoleResources


def job_scaling(job: ElasticJob, *, plan_unfinished: bool) -> JobScaling | None:
    """Return how the auto-scaler may scale; None when it has no role to scale."""
    autoscaling = job.spec.autoscaling
    spec = job.spec.replica_specs.get(autoscaling.role)
    if spec is None:
        return None
    status = job.status.replica_statuses.get(autoscaling.role, ReplicaStatus())
    others = [role for role in job.spec.replica_specs if role != autoscaling.role and desired(job, role)]
    return JobScaling(
        role=autoscaling.role,
        desired=desired(job, autoscaling.role),
        bounds=bounds(job, autoscaling.role),
        enabled=autoscaling.enabled and spec.auto_scale,
        objective=autoscaling.objective.min_marginal_efficiency,
        cooldown=float(autoscaling.cooldown_seconds),
        plan_unfinished=plan_unfinished or job.status.current_plan is not None,
        indices=read_indices(status.indices) - read_indices(status.succeeded_indices),
        roles={role: _role_resources(job, role) for role, each in job.spec.replica_specs.items() if each.auto_scale},
        free_resources=_free_resources(job),
        setting=", ".join(f"{role} {desired(job, role)} x {float(_total(job, role, 'cpu')):g}" for role in others),
    )


def bounds(job: ElasticJob, role: str) -> Bounds:
    """Return the sizes the role may have, and what sets the upper one; if there is none, only the present size."""
    spec = job.spec.replica_specs[role]
    maximum, limit = (spec.max_replicas, f"{role}.maxReplicas")
    limits = job.spec.autoscaling.resource_limits
    for resource, value in (("cpu", limits.cpu), ("memory", limits.memory), (names.RESOURCE_GPU, limits.gpu)):
        possible = _possible(job, role, resource, value)
        if possible is not None and (maximum is None or possible < maximum):
            maximum, limit = possible, f"autoscaling.resourceLimits ({resource} {value})"
    if maximum is None:
        maximum = max(spec.replicas, desired(job, role))
        limit = f"{role}.replicas, as neither maxReplicas nor resourceLimits are set,"
    multiple_of = job.spec.autoscaling.multiple_of
    minimum = -(-max(1, spec.min_replicas) // multiple_of) * multiple_of
    maximum -= maximum % multiple_of
    if minimum > maximum:
        size = max(1, desired(job, role))
        return Bounds(size, size, limit)
    return Bounds(minimum, maximum, limit, multiple_of=multiple_of)


def _role_resources(job: ElasticJob, role: str) -> RoleResources:
    spec, status = job.spec.replica_specs[role], job.status.replica_statuses.get(role, ReplicaStatus())
    template = training_container_resources(spec.template)
    each = template.with_plan_resources(status.resources)
    if spec.max_memory is not None:
        most, bound = int(parse_quantity(spec.max_memory)), f"{role}.maxMemory {spec.max_memory}"
    else:
        factor = DEFAULT_MAX_MEMORY_FACTOR
        most, bound = factor * (template.memory or 0), f"{factor} times the template's"
    by_index = {
        int(index): each.with_plan_resources(resources) for index, resources in status.resources_by_index.items()
    }
    return RoleResources(each, by_index, most, bound)


def _free_resources(job: ElasticJob) -> dict[str, float]:
    """Return what the job's limits leave beside what all members request now."""
    limits = job.spec.autoscaling.resource_limits
    return {
        name: float(parse_quantity(limit) - sum(_total(job, role, name) for role in job.spec.replica_specs))
        for name, limit in (("cpu", limits.cpu), ("memory", limits.memory))
        if limit is not None
    }


def _total(job: ElasticJob, role: str, resource: str) -> Decimal:
    """Return what the members of a role request together."""
    status = job.status.replica_statuses.get(role, ReplicaStatus())
    single = [parse_quantity(own[resource]) for own in status.resources_by_index.values() if resource in own]
    return _request(job, role, resource) * max(0, desired(job, role) - len(single)) + sum(single, Decimal(0))


def _possible(job: ElasticJob, role: str, resource: str, limit: int | str | None) -> int | None:
    """Return how many members of a role a limit over all roles allows; None when it says nothing about this role."""
    if limit is None:
        return None
    each = _request(job, role, resource)
    if each <= 0:
        return None
    others = sum((_total(job, r, resource) for r in job.spec.replica_specs if r != role), Decimal(0))
    return max(0, min(MAX_REPLICAS, int((parse_quantity(limit) - others) // each)))


def _request(job: ElasticJob, role: str, resource: str) -> Decimal:
    """Return what one member requests: as a plan has set it, else as its template says."""
    status = job.status.replica_statuses.get(role)
    planned = status.resources.get(resource) if status is not None else None
    if planned is not None:
        return parse_quantity(planned)
    return pod_requests(job.spec.replica_specs[role].template).get(resource, Decimal(0))
