"""Computes merge patches between two statuses, so that the operator writes changed fields only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob_api.limits import MAX_MESSAGE_CHARACTERS
from elasticjob_api.meta import Json
from elasticjob_api.scale_requests import ScaleIn, ScaleOut, ScaleRequestStatus
from elasticjob_api.scaleplan import ScalePlan, ScalePlanStatus

from elasticjob_operator.core.model.actions import (
    Action,
    Adopt,
    DeleteScaling,
    PatchJobStatus,
    PatchStatus,
    ScalingKind,
)
from elasticjob_operator.core.model.observed import owner_reference


def difference(
    before: Mapping[str, Any], after: Mapping[str, Any], *, keep_others: bool = False
) -> Json:
    """Return the merge patch (RFC 7386) from one object to the other; empty if they are equal.

    `keep_others`: fields that `after` does not have stay as they are.
    """
    patch: Json = {} if keep_others else {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            if inner := difference(old, value, keep_others=keep_others):
                patch[key] = inner
        elif old != value:
            patch[key] = value
    return patch


def combined(first: Json, second: Json) -> Json:
    """Return the merge patch that has the effect of two, one after the other.

    The first one must not remove or replace an object into which the second one writes.
    """
    patch = dict(first)
    for key, value in second.items():
        old = patch.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            value = combined(old, value)
        patch[key] = value
    return patch


def job_status(job: ElasticJob, status: ElasticJobStatus) -> list[PatchJobStatus]:
    """Return the patch that gives the job this status; empty if it has it already."""
    if status == job.status:
        return []
    before = msgspec.to_builtins(job.status)
    if job.status.phase is None:
        # Counts that are 0 are not written yet.
        before = {field: value for field, value in before.items() if value != 0}
    patch = difference(before, _within_bounds(status))
    return [PatchJobStatus(patch)] if patch else []


def with_earlier(
    earlier: Sequence[PatchJobStatus], actions: Sequence[Action]
) -> tuple[Action, ...]:
    """Return actions that first write an earlier status, on which they were decided.

    Their own first write of the job's status has both.
    """
    for position, action in enumerate(actions):
        if isinstance(action, PatchJobStatus):
            for each in earlier:
                action = PatchJobStatus(combined(dict(each.patch), dict(action.patch)))
            return (*actions[:position], action, *actions[position + 1 :])
    return (*earlier, *actions)


def scaling_status(
    item: ScalePlan | ScaleIn | ScaleOut, status: ScalePlanStatus | ScaleRequestStatus
) -> list[PatchStatus]:
    """Return the patch that gives a plan or request this status; empty if it has it already."""
    patch = difference(msgspec.to_builtins(item.status), _within_bounds(status))
    metadata = item.metadata
    if not patch:
        return []
    return [
        PatchStatus(kind_of(item), metadata.name, metadata.uid, metadata.resource_version, patch)
    ]


def deletion(item: ScalePlan | ScaleIn | ScaleOut) -> DeleteScaling:
    """Return the deletion of a plan or request."""
    return DeleteScaling(kind_of(item), item.metadata.name, item.metadata.uid)


def kind_of(item: ScalePlan | ScaleIn | ScaleOut) -> ScalingKind:
    """Return the kind of a plan or request."""
    kind: ScalingKind = type(item).__name__  # type: ignore[assignment]
    return kind


def adoption(job: ElasticJob, item: ScalePlan | ScaleIn | ScaleOut) -> list[Adopt]:
    """Return the action that makes the job an owner; empty if the object has an owner."""
    if item.metadata.owner_references:
        return []
    metadata = item.metadata
    owner = owner_reference(job, controller=False)
    return [Adopt(kind_of(item), metadata.name, metadata.uid, metadata.resource_version, (owner,))]


def _within_bounds(status: ElasticJobStatus | ScalePlanStatus | ScaleRequestStatus) -> Json:
    """Return a status as JSON, with messages that are not longer than the API server accepts."""
    written: Json = msgspec.to_builtins(status)
    for entry in (written, *written.get("conditions", ())):
        if "message" in entry:
            entry["message"] = entry["message"][:MAX_MESSAGE_CHARACTERS]
    return written
