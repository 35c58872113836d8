"""Reads from the ElasticJob how it may be scaled. Pure."""

from __future__ import annotations

from decimal import Decimal

from elasticjob_api.elasticjob import (
    DEFAULT_MAX_MEMORY_FACTOR,
    MAX_REPLICAS,
    ElasticJob,
    ReplicaSpec,
    ReplicaStatus,
)
from elasticjob_api.indices import read_indices
from elasticjob_api.pod_requests import (
    role_requests,
    set_for_whole_pod,
    template_requests_by_plan,
)
from elasticjob_api.quantity import parse_quantity
from elasticjob_api.resources import bounded_resource, limits_by_resource
from elasticjob_api.roles import kept_roles, notified_roles
from elasticjob_api.times import parse_time

from elasticjob_master.cluster.job_spec import desired
from elasticjob_master.cluster.template_resources import (
    training_container_resources,
    with_plan_resources,
)
from elasticjob_master.core.autoscale.decision import Bounds
from elasticjob_master.core.autoscale.job_scaling import JobScaling, RoleResources
from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.core.autoscale.parameter_servers import SERVER_ROLES


def job_scaling(job: ElasticJob, *, plan_unfinished: bool) -> JobScaling | None:
    """Return how the auto-scaler may scale; None when it has no role to scale."""
    autoscaling = job.spec.autoscaling
    spec = job.spec.replica_specs.get(autoscaling.role)
    if spec is None:
        return None
    status = job.status.replica_statuses.get(autoscaling.role, ReplicaStatus())
    others = [
        role for role in job.spec.replica_specs if role != autoscaling.role and desired(job, role)
    ]
    return JobScaling(
        role=autoscaling.role,
        desired=desired(job, autoscaling.role),
        bounds=bounds(job, autoscaling.role),
        enabled=autoscaling.enabled and spec.auto_scale,
        objective=objective(job),
        cooldown=float(autoscaling.cooldown_seconds),
        plan_unfinished=plan_unfinished or job.status.current_plan is not None,
        indices=frozenset(read_indices(status.indices) - read_indices(status.succeeded_indices)),
        roles={
            role: _role_resources(job, role)
            for role, each in job.spec.replica_specs.items()
            if _may_set_resources(each)
        },
        free_resources=_free_resources(job),
        most_servers={role: most for role in SERVER_ROLES if (most := _most_servers(job, role))},
        setting=", ".join(
            f"{role} {desired(job, role)} x {float(_total(job, role, 'cpu')):g}" for role in others
        ),
    )


def objective(job: ElasticJob) -> Objective:
    """Return the objective of the size. The API server has checked its fields."""
    wanted = job.spec.autoscaling.objective
    role = job.spec.autoscaling.role
    if wanted.type == "Deadline" and wanted.finish_time is not None:
        return Objective("Deadline", finish_at=parse_time(wanted.finish_time))
    if wanted.type == "Cost" and wanted.prices.get(role):
        others = sum(
            wanted.prices.get(other, 0.0) * desired(job, other)
            for other in job.spec.replica_specs
            if other != role
        )
        return Objective("Cost", price=wanted.prices[role], others=others)
    if wanted.type == "Throughput":
        return Objective("Throughput")
    return Objective(efficiency=wanted.min_marginal_efficiency)


def bounds(job: ElasticJob, role: str) -> Bounds:
    """Return the sizes that the role may have, and the setting that limits them.

    If no setting does, only the present size is possible.
    """
    spec = job.spec.replica_specs[role]
    maximum = spec.max_replicas
    limit = f"{role}.maxReplicas"
    limits = job.spec.autoscaling.resource_limits
    for resource, value in limits_by_resource(limits).items():
        possible = _possible(job, role, resource, value)
        if possible is not None and (maximum is None or possible < maximum):
            maximum = possible
            limit = f"autoscaling.resourceLimits ({resource} {value})"
    by_need = (
        maximum is None
        and _unwritten(job, role)
        and not limits.keys().isdisjoint({"cpu", "memory"})
    )
    if maximum is None and by_need:
        maximum = MAX_REPLICAS
        limit = "autoscaling.resourceLimits"
    if maximum is None:
        maximum = max(spec.size, desired(job, role))
        limit = (
            f"{role}.replicas, as neither maxReplicas nor resourceLimits are set "
            "(write one to let it grow),"
        )
    multiple_of = job.spec.autoscaling.multiple_of
    minimum = -(-max(1, spec.min_replicas) // multiple_of) * multiple_of
    maximum -= maximum % multiple_of
    if minimum > maximum:
        size = max(1, desired(job, role))
        return Bounds(size, size, limit)
    return Bounds(minimum, maximum, limit, multiple_of=multiple_of, by_need=by_need)


def _unwritten(job: ElasticJob, role: str) -> bool:
    """Return whether the user leaves CPU and memory of a role to the auto-scaler."""
    spec = job.spec.replica_specs[role]
    return _may_set_resources(spec) and _role_resources(job, role).is_unwritten


def _may_set_resources(spec: ReplicaSpec) -> bool:
    """Return whether the auto-scaler may set CPU and memory: not where the whole pod has them."""
    return spec.auto_scale and not set_for_whole_pod(spec.template)


def _most_servers(job: ElasticJob, role: str) -> int:
    """Return the largest number of parameter servers of a role; 0: it must not be changed.

    TensorFlow's chief and MXNet's workers save all variables and distribute them again over the
    servers. A custom job must restart its servers with each world, and its maxReplicas must be
    larger than its replicas.
    """
    spec = job.spec.replica_specs.get(role)
    framework = job.spec.framework
    if spec is None or not spec.auto_scale or role == job.spec.autoscaling.role:
        return 0
    if framework == "custom":
        written = spec.max_replicas is not None and spec.max_replicas > spec.size
        if not written or role in kept_roles(job) | notified_roles(job):
            return 0
    elif framework not in ("tensorflow", "mxnet"):
        return 0
    by_limits = [
        _possible(job, role, bounded_resource(key), limit)
        for key, limit in job.spec.autoscaling.resource_limits.items()
    ]
    return min((most for most in (spec.max_replicas, *by_limits) if most is not None), default=0)


def _role_resources(job: ElasticJob, role: str) -> RoleResources:
    spec = job.spec.replica_specs[role]
    status = job.status.replica_statuses.get(role, ReplicaStatus())
    template = training_container_resources(spec.template)
    each = with_plan_resources(template, status.resources)
    if spec.max_memory is not None:
        most = int(parse_quantity(spec.max_memory))
        bound = f"{role}.maxMemory {spec.max_memory}"
    else:
        factor = DEFAULT_MAX_MEMORY_FACTOR
        of = "the template's" if template.memory is not None else "what it has"
        most = factor * (template.memory or each.memory or 0)
        bound = f"{factor} times {of}"
    by_index = {
        int(index): with_plan_resources(each, resources)
        for index, resources in status.resources_by_index.items()
    }
    requests = {name: float(_request(job, role, name)) for name in ("cpu", "memory")}
    return RoleResources(
        each,
        by_index,
        most,
        bound,
        requests={name: amount for name, amount in requests.items() if amount},
        desired=desired(job, role),
        indices=frozenset(read_indices(status.indices) - read_indices(status.succeeded_indices)),
    )


def _free_resources(job: ElasticJob) -> dict[str, float]:
    """Return the job's limits less the present requests of all members."""
    limits = job.spec.autoscaling.resource_limits
    return {
        name: float(
            parse_quantity(limit) - sum(_total(job, role, name) for role in job.spec.replica_specs)
        )
        for name in ("cpu", "memory")
        if (limit := limits.get(name)) is not None
    }


def _total(job: ElasticJob, role: str, resource: str) -> Decimal:
    """Return the sum of the requests of a role's members."""
    status = job.status.replica_statuses.get(role, ReplicaStatus())
    requests = template_requests_by_plan(job.spec.replica_specs[role].template)
    single = [
        requests(own).get(resource, Decimal(0))
        for own in status.resources_by_index.values()
        if resource in own
    ]
    return _request(job, role, resource) * max(0, desired(job, role) - len(single)) + sum(
        single, Decimal(0)
    )


def _possible(job: ElasticJob, role: str, resource: str, limit: int | str) -> int | None:
    """Return how many members of a role a limit over all roles allows; None: any number."""
    each = _request(job, role, resource)
    if each <= 0:
        return None
    others = sum(
        (_total(job, r, resource) for r in job.spec.replica_specs if r != role), Decimal(0)
    )
    room = parse_quantity(limit) - others
    if room < each:
        return 0
    return MAX_REPLICAS if room >= MAX_REPLICAS * each else int(room // each)


def _request(job: ElasticJob, role: str, resource: str) -> Decimal:
    """Return the request of one member, which a plan or else the template sets."""
    return role_requests(job, role).get(resource, Decimal(0))
