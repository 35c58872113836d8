"""Merge patches with the difference between two statuses, so that only what has changed is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec
from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob_api.ownership import names_owner
from elasticjob_api.scaleplan import ScalePlan, ScalePlanStatus
from elasticjob_api.scalers import ScaleIn, ScaleOut, ScalerStatus

from elasticjob_operator.core.model.actions import Adopt, PatchJobStatus, PatchStatus
from elasticjob_operator.core.model.conform import conform
from elasticjob_operator.core.model.observed import Repair, owner_reference

Json = dict[str, Any]
Custom = TypeVar("Custom", bound=ElasticJob | ScalePlan | ScaleIn | ScaleOut)
_STATUS_TYPES: Mapping[type[Any], type[ElasticJobStatus | ScalePlanStatus | ScalerStatus]] = {
    ElasticJob: ElasticJobStatus,
    ScalePlan: ScalePlanStatus,
    ScaleIn: ScalerStatus,
    ScaleOut: ScalerStatus,
}


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Json:
    """Return the merge patch (RFC 7386) that turns one object into the other.

    Empty when they are equal.
    """
    patch: Json = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            if inner := difference(old, value):
                patch[key] = inner
        elif old != value:
            patch[key] = value
    return patch


def readable(raw: Mapping[str, Any], as_type: type[Custom]) -> tuple[Custom, Repair | None]:
    """Return an object as its type, without what its status has beyond its bounds, and what repairs the stored one.

    Raises:
        msgspec.ValidationError: it is not its status that cannot be read.
    """
    try:
        return msgspec.convert(raw, as_type), None
    except msgspec.ValidationError:
        status = raw.get("status")
        if status is None:
            raise
        fitting, notes = conform(status, _STATUS_TYPES[as_type], "status")
        item = msgspec.convert({**raw, "status": fitting}, as_type)
        before = status if isinstance(status, Mapping) else {}
        return item, Repair(difference(before, fitting), tuple(notes))


def job_status(job: ElasticJob, status: ElasticJobStatus) -> list[PatchJobStatus]:
    """Return the patch that gives the job this status; empty if it has it already."""
    if status == job.status:
        return []
    before = msgspec.to_builtins(job.status)
    if job.status.phase is None:
        before = {
            field: value for field, value in before.items() if value != 0
        }  # nobody has written them yet
    patch = difference(before, _within_bounds(status))
    return [PatchJobStatus(patch)] if patch else []


def plan_status(plan: ScalePlan, status: ScalePlanStatus) -> list[PatchStatus]:
    """Return the patch that gives the plan this status; empty if it has it already."""
    return _patch("ScalePlan", plan, status)


def scaler_status(scaler: ScaleIn | ScaleOut, status: ScalerStatus) -> list[PatchStatus]:
    """Return the patch that gives the ScaleIn or ScaleOut this status.

    Empty if it has it already.
    """
    return _patch("ScaleIn" if isinstance(scaler, ScaleIn) else "ScaleOut", scaler, status)


def adoption(job: ElasticJob, item: ScalePlan | ScaleIn | ScaleOut) -> list[Adopt]:
    """Return the action that makes the job an owner; empty if the object has an owner."""
    if item.metadata.owner_references:
        return []
    kind: Literal["ScalePlan", "ScaleIn", "ScaleOut"] = type(item).__name__  # type: ignore[assignment]
    metadata = item.metadata
    owner = owner_reference(job, controller=False)
    return [Adopt(kind, metadata.name, metadata.uid, metadata.resource_version, (owner,))]


def is_plan_of(plan: ScalePlan, scaler: ScaleIn | ScaleOut) -> bool:
    """Whether the plan is controlled by this ScaleIn or ScaleOut."""
    kind = type(scaler).__name__
    name = scaler.metadata.name
    uid = scaler.metadata.uid
    return any(
        owner.controller and names_owner(owner, kind, name, uid)
        for owner in plan.metadata.owner_references
    )


def _patch(
    kind: Literal["ScalePlan", "ScaleIn", "ScaleOut"],
    item: ScalePlan | ScaleIn | ScaleOut,
    status: ScalePlanStatus | ScalerStatus,
) -> list[PatchStatus]:
    patch = difference(msgspec.to_builtins(item.status), _within_bounds(status))
    metadata = item.metadata
    return (
        [PatchStatus(kind, metadata.name, metadata.uid, metadata.resource_version, patch)]
        if patch
        else []
    )


def _within_bounds(status: ElasticJobStatus | ScalePlanStatus | ScalerStatus) -> Json:
    """Return a status as JSON that the API server takes.

    A message of it may be longer than any field may be.
    """
    written: Json = msgspec.to_builtins(status)
    try:
        msgspec.convert(written, type(status))
    except msgspec.ValidationError:
        return conform(written, type(status), "status")[0]
    return written
