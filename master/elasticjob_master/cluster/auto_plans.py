"""Writes manifests of the master's own ScalePlans, and reads their numbers and results. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.indices import read_indices
from elasticjob_api.ownership import names_owner
from elasticjob_api.quantity import format_memory
from elasticjob_api.scaleplan import MAX_PODS_PER_PLAN, MAX_REASON_CHARACTERS, ScalePlan
from elasticjob_kube.resources import ELASTIC_JOBS, SCALE_PLANS

from elasticjob_master.cluster.job_spec import desired
from elasticjob_master.config import Config
from elasticjob_master.core.autoscale.decision import ScalingDecision
from elasticjob_master.core.autoscale.job_scaling import EndedPlan


def manifest(config: Config, number: int, role: str, decision: ScalingDecision) -> dict[str, Any]:
    """Return the ScalePlan of a decision. On a timeout the operator rolls it back."""
    owner = {
        "apiVersion": ELASTIC_JOBS.api_version,
        "kind": ELASTIC_JOBS.kind,
        "name": config.job_name,
        "uid": config.job_uid,
    }
    roles: dict[str, dict[str, Any]] = {
        name: {"resource": _resource(wanted)} for name, wanted in decision.resources.items()
    }
    for name, count in decision.servers.items():
        roles.setdefault(name, {})["replicas"] = count
    if decision.size is not None:
        roles.setdefault(role, {})["replicas"] = decision.size
    spec = {
        "jobName": config.job_name,
        "source": "Auto",
        "reason": decision.reason[:MAX_REASON_CHARACTERS],
        "replicaResourceSpecs": roles,
        "removePods": [
            {"role": role, "index": index} for index in decision.remove[:MAX_PODS_PER_PLAN]
        ],
        "migratePods": _migrated(decision)[:MAX_PODS_PER_PLAN],
        "onTimeout": "Rollback",
    }
    return {
        "apiVersion": SCALE_PLANS.api_version,
        "kind": SCALE_PLANS.kind,
        "metadata": {
            "name": plan_name(config.job_name, number),
            "labels": {names.LABEL_JOB_NAME: config.job_name, names.LABEL_JOB_UID: config.job_uid},
            "ownerReferences": [owner],
        },
        "spec": {name: value for name, value in spec.items() if value},
    }


def _migrated(decision: ScalingDecision) -> list[dict[str, Any]]:
    """Return the members that are replaced."""
    named: list[dict[str, Any]] = [
        {"name": pod, "resource": _resource(wanted)} for pod, wanted in decision.migrate.items()
    ]
    if decision.straggler is not None:
        named.append({"name": decision.straggler.pod, "avoidNode": True})
    return [*named, *({"role": role, "index": index} for role, index in decision.replace)]


def plan_name(job_name: str, number: int) -> str:
    """Return the name of the master's plan with this number."""
    return f"{job_name}-auto-{number}"


def number_of(plan: ScalePlan, config: Config) -> int | None:
    """Return the number of a plan that a master of this job has created; None for other plans."""
    number = plan.metadata.name.removeprefix(plan_name(config.job_name, 0)[:-1])
    kind = ELASTIC_JOBS.kind
    name = config.job_name
    uid = config.job_uid
    ours = any(names_owner(owner, kind, name, uid) for owner in plan.metadata.owner_references)
    if not ours or plan.spec.source != "Auto" or not number.isascii() or not number.isdecimal():
        return None
    return int(number)


def ended_plan(job: ElasticJob, plan: ScalePlan, number: int) -> EndedPlan:
    """Return the result of a finished plan of the master."""
    role = job.spec.autoscaling.role
    request = plan.spec.replica_resource_specs.get(role)
    reached = plan.status.targets.get(role)
    return EndedPlan(
        number=number,
        phase=plan.status.phase or "",
        requested_size=requested_size(job, plan),
        reached_size=desired(job, role)
        if request is None or reached is None
        else len(read_indices(reached)),
        message=plan.status.message,
        resources=bool(plan.spec.migrate_pods)
        or any(each.resource for each in plan.spec.replica_resource_specs.values()),
        replacement=next(
            (move.replacement for move in plan.status.migrations if move.phase == "Done"), None
        ),
    )


def requested_size(job: ElasticJob, plan: ScalePlan) -> int | None:
    """Return the size of the scaled role that a plan requests, if any."""
    request = plan.spec.replica_resource_specs.get(job.spec.autoscaling.role)
    return request.replicas if request is not None else None


def replaced_straggler(plan: ScalePlan) -> str | None:
    """Return the pod of the straggler that a plan of the master replaces, if any."""
    return next((entry.name for entry in plan.spec.migrate_pods if entry.avoid_node), None)


def _resource(wanted: Mapping[str, float]) -> dict[str, str]:
    """Return cores and bytes in the form of a plan.

    Raises:
        ValueError: another resource is requested. The user sets the GPUs of a pod.
    """
    if others := wanted.keys() - {"cpu", "memory"}:
        raise ValueError(f"the auto-scaler changes CPU and memory, not {', '.join(sorted(others))}")
    amounts = {}
    if "cpu" in wanted:
        amounts["cpu"] = f"{round(wanted['cpu'] * 1000)}m"
    if "memory" in wanted:
        amounts["memory"] = format_memory(Decimal(wanted["memory"]))
    return amounts
