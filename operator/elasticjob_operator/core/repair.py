"""Repairs statuses before anything is decided by them: somebody else may have written them.

A status is the operator's memory, and it is the operator that writes it. But whoever may write a
status can give it any value that its schema allows. So what the operator relies on is checked
against the job's spec and its pods first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus, ReplicaStatus
from elasticjob_api.indices import format_indices, parse_indices
from elasticjob_api.limits import MAX_COUNTER
from elasticjob_api.quantity import parse_quantity
from elasticjob_api.resources import amount_error, limits_by_resource
from elasticjob_api.scaleplan import FINISHED, Migration, RolePlan, ScalePlan, ScalePlanStatus
from elasticjob_api.scalers import ScaleIn, ScaleOut
from elasticjob_api.times import parse_time
from msgspec.structs import replace

from elasticjob_operator.core.members.more_memory import most_memory
from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import Action, EmitEvent, PatchJobStatus, PatchStatus
from elasticjob_operator.core.model.observed import Observed, Pod
from elasticjob_operator.core.scaling.member_selection import with_size
from elasticjob_operator.core.scaling.request_status import all_scalers

_MAX_QUANTITY = 2**63 - 1
"""What Kubernetes can count."""
_MAX_INCARNATIONS = MAX_COUNTER // 2
"""Beyond it the number is nobody's count: there must be room for many more names."""
_MAX_NOTES = 10


def repair_statuses(observed: Observed) -> list[Action]:
    """Return the writes that repair the statuses of a job, its plans and its requests, and an event that names fields.

    Empty where all is sound. Nothing else is decided before.
    """
    job = observed.job
    notes = list[str]()
    actions: list[Action] = []
    if (repair := observed.repairs.get(job.metadata.uid)) is not None and repair.patch:
        actions.append(PatchJobStatus(repair.patch))
        notes += repair.notes
    elif job.status.phase is not None:
        status, found = sound_job_status(job, observed.pods)
        actions += patches.job_status(job, status)
        notes += found
    for item in (*observed.plans, *all_scalers(observed)):
        repaired = _schema_repair(observed, item)
        found = _schema_notes(observed, item)
        if not repaired and isinstance(item, ScalePlan):
            status_of_plan, found = _sound_plan_status(job, item)
            repaired = [*patches.plan_status(item, status_of_plan)]
        actions += repaired
        notes += [f"{type(item).__name__} {item.metadata.name}: {note}" for note in found]
    if actions:
        actions.append(EmitEvent("StatusRepaired", "; ".join(notes[:_MAX_NOTES]), warning=True))
    return actions


def sound_job_status(job: ElasticJob, pods: Iterable[Pod]) -> tuple[ElasticJobStatus, list[str]]:
    """Return the status with roles, indices, names and resources as they can be, and what had to change."""
    notes: list[str] = []
    old = job.status.replica_statuses
    members = list(pods)
    roles = {
        role: _sound_role(
            job, role, old.get(role), [pod for pod in members if pod.role == role], notes
        )
        for role in job.spec.replica_specs
    }
    notes += [
        f"status.replicaStatuses.{role}: no role of the job" for role in old if role not in roles
    ]
    status = job.status if roles == old else replace(job.status, replica_statuses=roles)
    if not _is_time_or_none(status.start_time):
        notes.append("status.startTime is no time")
        status = replace(status, start_time=None)
    if not _is_time_or_none(status.completion_time):
        notes.append("status.completionTime is no time")
        status = replace(status, completion_time=None)
    highest = max(
        (pod.incarnation + 1 for pod in members if pod.role == names.ROLE_MASTER), default=0
    )
    if not highest <= status.master.incarnations <= _MAX_INCARNATIONS:
        notes.append(
            f"status.master.incarnations: {status.master.incarnations}, and there is a pod {highest - 1}"
        )
        status = replace(status, master=replace(status.master, incarnations=highest))
    return status, notes


def _sound_role(
    job: ElasticJob, role: str, replica: ReplicaStatus | None, pods: list[Pod], notes: list[str]
) -> ReplicaStatus:
    path = f"status.replicaStatuses.{role}"
    if replica is None:
        notes.append(f"{path} is missing")
        replica = ReplicaStatus(indices="?")
    changes: dict[str, Any] = {}
    members = _readable(replica.indices)
    if members is None or (not members and replica.desired):
        # The status has lost them: as many as the spec asks for, those with pods first.
        present = frozenset(pod.index for pod in pods if not pod.finished)
        size = job.spec.replica_specs[role].size
        members = with_size(present, size, used=present, keep=frozenset(), first=frozenset())
        notes.append(
            f"{path}.indices: {replica.indices[:60]!r} cannot be; the members are {format_indices(members)}"
        )
        changes |= {"indices": format_indices(members), "desired": len(members)}
    for field, outside in (
        ("succeeded_indices", "succeededIndices"),
        ("started_indices", "startedIndices"),
    ):
        if _readable(getattr(replica, field)) is None:
            notes.append(f"{path}.{outside}: {getattr(replica, field)[:60]!r} cannot be")
            changes[field] = ""
    highest = max((pod.index for pod in pods), default=-1)
    if replica.highest_index < highest:
        notes.append(f"{path}.highestIndex: {replica.highest_index}, and there is a pod {highest}")
        changes["highest_index"] = highest
    newest = max((pod.incarnation for pod in pods), default=0)
    if not newest <= replica.incarnations <= _MAX_INCARNATIONS:
        notes.append(f"{path}.incarnations: {replica.incarnations}, and there is a pod {newest}")
        changes["incarnations"] = newest
    if (resources := _sound_resources(job, replica.resources)) != replica.resources:
        notes.append(f"{path}.resources: {replica.resources} is more than a member can have")
        changes["resources"] = resources
    by_index = {
        index: _sound_own_resources(job, role, each)
        for index, each in replica.resources_by_index.items()
    }
    if by_index != replica.resources_by_index:
        notes.append(f"{path}.resourcesByIndex: more than a member can have")
        changes["resources_by_index"] = by_index
    return replace(replica, **changes) if changes else replica


def _sound_plan_status(job: ElasticJob, plan: ScalePlan) -> tuple[ScalePlanStatus, list[str]]:
    """Return the status of a plan that has begun with what can be executed of it, and what had to change."""
    status = plan.status
    roles = job.spec.replica_specs
    notes = list[str]()
    if status.phase is None or status.phase in FINISHED:
        return status, notes
    changes: dict[str, Any] = {
        field: {
            role: text
            for role, text in sizes.items()
            if role in roles and _readable(text) is not None
        }
        for field, sizes in (("targets", status.targets), ("before", status.before))
    }
    changes["spec_replicas"] = {
        role: size for role, size in status.spec_replicas.items() if role in roles
    }
    changes["resources_by_index"] = {
        role: {index: _sound_own_resources(job, role, each) for index, each in given.items()}
        for role, given in status.resources_by_index.items()
        if role in roles
    }
    changes["migrations"] = _sound_migrations(job, plan)
    for field in ("start_time", "execution_time", "resize_time"):
        changes[field] = (
            getattr(status, field) if _is_time_or_none(getattr(status, field)) else None
        )
    changes = {field: value for field, value in changes.items() if value != getattr(status, field)}
    notes = [f"status.{_outside(field)} has what the plan cannot have" for field in changes]
    return (replace(status, **changes) if changes else status), notes


def _sound_migrations(job: ElasticJob, plan: ScalePlan) -> list[Migration]:
    """Return the migrations without those of unknown roles, and no more under way than the plan can have begun."""
    possible = len(plan.spec.migrate_pods) + any(entry.resource for entry in _role_plans(plan))
    kept = []
    for move in plan.status.migrations:
        if move.role not in job.spec.replica_specs or not _is_time_or_none(move.since):
            continue
        if move.phase in ("Pending", "Starting", "Draining"):
            if not possible:
                continue
            possible -= 1
        kept.append(move)
    return kept


def _role_plans(plan: ScalePlan) -> Iterable[RolePlan]:
    return plan.spec.replica_resource_specs.values()


def _sound_resources(job: ElasticJob, resources: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the resources without those that no member can have.

    Above the limit of all members, or no quantity.
    """
    limit = limits_by_resource(job.spec.autoscaling.resource_limits)
    return {
        name: value
        for name, value in resources.items()
        if _is_possible(name, value, limit.get(name))
    }


def _sound_own_resources(
    job: ElasticJob, role: str, resources: Mapping[Any, Any]
) -> dict[Any, Any]:
    """Return the same for one member.

    Restarts may have given it more memory than plans may request.
    """
    sound = _sound_resources(job, resources)
    memory = resources.get("memory")
    if memory is not None and _is_possible(
        "memory", memory, str(most_memory(job.spec.replica_specs[role]))
    ):
        sound["memory"] = memory
    return sound


def _is_possible(name: str, value: int | str, limit: int | str | None) -> bool:
    if amount_error(name, value):
        return False
    number = parse_quantity(value)
    return 0 < number <= _MAX_QUANTITY and (limit is None or number <= parse_quantity(limit))


def _readable(text: str) -> frozenset[int] | None:
    try:
        return parse_indices(text)
    except ValueError:
        return None


def _is_time_or_none(text: str | None) -> bool:
    try:
        return text is None or parse_time(text) > 0
    except ValueError:
        return False


def _outside(field: str) -> str:
    """Return a field's name in the API."""
    first, *others = field.split("_")
    return first + "".join(word.capitalize() for word in others)


def _schema_repair(observed: Observed, item: ScalePlan | ScaleIn | ScaleOut) -> list[Action]:
    repair = observed.repairs.get(item.metadata.uid)
    metadata = item.metadata
    if repair is None or not repair.patch:
        return []
    kind: Any = type(item).__name__
    return [PatchStatus(kind, metadata.name, metadata.uid, metadata.resource_version, repair.patch)]


def _schema_notes(observed: Observed, item: ScalePlan | ScaleIn | ScaleOut) -> list[str]:
    repair = observed.repairs.get(item.metadata.uid)
    return list(repair.notes) if repair is not None else []
