"""How the job may be scaled, as the ElasticJob says, and the ScalePlans of the auto-scaler. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import DEFAULT_MAX_MEMORY_FACTOR, MAX_REPLICAS, ElasticJob, ReplicaStatus
from elasticjob_api.indices import parse_indices
from elasticjob_api.quantity import format_memory, parse_quantity
from elasticjob_api.scaleplan import MAX_PODS_PER_PLAN, MAX_REASON_CHARACTERS, ScalePlan
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_PLANS

from elasticjob_master.cluster.job_spec import desired
from elasticjob_master.config import Config
from elasticjob_master.core.autoscale.container_resources import pod_requests, training_container_resources
from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision
from elasticjob_master.core.autoscale.job_scaling import EndedPlan, JobScaling, RoleResources


def scaling(job: ElasticJob, *, plan_unfinished: bool) -> JobScaling | None:
    """Return how the auto-scaler may scale; None when it has no role to scale."""
    wanted = job.spec.autoscaling
    spec = job.spec.replica_specs.get(wanted.role)
    if spec is None:
        return None
    status = job.status.replica_statuses.get(wanted.role, ReplicaStatus())
    others = [role for role in job.spec.replica_specs if role != wanted.role and desired(job, role)]
    return JobScaling(
        role=wanted.role,
        desired=desired(job, wanted.role),
        bounds=bounds(job, wanted.role),
        enabled=wanted.enabled and spec.auto_scale,
        objective=wanted.objective.min_marginal_efficiency,
        cooldown=float(wanted.cooldown_seconds),
        plan_unfinished=plan_unfinished or job.status.current_plan is not None,
        indices=parse_indices(status.indices) - parse_indices(status.succeeded_indices),
        roles={role: _shares(job, role) for role, each in job.spec.replica_specs.items() if each.auto_scale},
        free_resources=_room(job),
        setting=", ".join(f"{role} {desired(job, role)} x {float(_total(job, role, 'cpu')):g}" for role in others),
    )


def bounds(job: ElasticJob, role: str) -> Bounds:
    """Return the sizes the role may have, and what sets the upper one."""
    spec = job.spec.replica_specs[role]
    maximum, limit = (spec.max_replicas, f"{role}.maxReplicas")
    if maximum is None:
        maximum, limit = max(spec.replicas, desired(job, role)), f"{role}.replicas, as maxReplicas is not set,"
    limits = job.spec.autoscaling.resource_limits
    for resource, value in (("cpu", limits.cpu), ("memory", limits.memory), (names.RESOURCE_GPU, limits.gpu)):
        possible = _possible(job, role, resource, value)
        if possible is not None and possible < maximum:
            maximum, limit = possible, f"autoscaling.resourceLimits ({resource} {value})"
    return Bounds(max(1, spec.min_replicas), maximum, limit)


def plan(config: Config, number: int, role: str, decision: ScalingDecision) -> dict[str, Any]:
    """Return the ScalePlan of a decision; members that cannot be had in time are not waited for any longer."""
    owner = {
        "apiVersion": ELASTIC_JOBS.api_version,
        "kind": ELASTIC_JOBS.kind,
        "name": config.job_name,
        "uid": config.job_uid,
    }
    roles: dict[str, dict[str, Any]] = {
        name: {"resource": _resource(wanted)} for name, wanted in decision.resources.items()
    }
    if decision.size is not None:
        roles.setdefault(role, {})["replicas"] = decision.size
    spec = {
        "jobName": config.job_name,
        "source": "Auto",
        "reason": decision.reason[:MAX_REASON_CHARACTERS],
        "replicaResourceSpecs": roles,
        "removePods": [{"role": role, "index": index} for index in decision.remove[:MAX_PODS_PER_PLAN]],
        "migratePods": [
            {"name": pod, "resource": _resource(wanted)}
            for pod, wanted in list(decision.migrate.items())[:MAX_PODS_PER_PLAN]
        ],
        "onTimeout": "Rollback",
    }
    return {
        "apiVersion": SCALE_PLANS.api_version,
        "kind": SCALE_PLANS.kind,
        "metadata": {
            "name": auto_plan(config.job_name, number),
            "labels": {names.LABEL_JOB_NAME: config.job_name, names.LABEL_JOB_UID: config.job_uid},
            "ownerReferences": [owner],
        },
        "spec": {name: value for name, value in spec.items() if value},
    }


def auto_plan(job_name: str, number: int) -> str:
    """Return the name of the auto-scaler's plan with a number."""
    return f"{job_name}-auto-{number}"


def auto_number(plan: ScalePlan, config: Config) -> int | None:
    """Return the number of a plan that a master of this very job has made; None: it is somebody else's."""
    number = plan.metadata.name.removeprefix(auto_plan(config.job_name, 0)[:-1])
    ours = any(owner.uid == config.job_uid for owner in plan.metadata.owner_references)
    if not ours or plan.spec.source != "Auto" or not number.isascii() or not number.isdecimal():
        return None
    return int(number)


def ended(job: ElasticJob, plan: ScalePlan, number: int) -> EndedPlan:
    """Return what there is to learn from a finished plan of the auto-scaler."""
    role = job.spec.autoscaling.role
    wish = plan.spec.replica_resource_specs.get(role)
    reached = plan.status.targets.get(role)
    return EndedPlan(
        number=number,
        phase=plan.status.phase or "",
        requested_size=wanted_size(job, plan),
        reached_size=desired(job, role) if wish is None or reached is None else len(parse_indices(reached)),
        message=plan.status.message,
    )


def wanted_size(job: ElasticJob, plan: ScalePlan) -> int | None:
    """Return the size of the scaled role that a plan asks for, if it does."""
    wish = plan.spec.replica_resource_specs.get(job.spec.autoscaling.role)
    return wish.replicas if wish is not None else None


def _resource(wanted: Mapping[str, float]) -> dict[str, str]:
    return {
        name: format_memory(Decimal(value)) if name == "memory" else f"{round(value * 1000)}m"
        for name, value in wanted.items()
    }


def _shares(job: ElasticJob, role: str) -> RoleResources:
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


def _room(job: ElasticJob) -> dict[str, float]:
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
