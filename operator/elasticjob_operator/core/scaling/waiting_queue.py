"""The queue of one job's plans and requests, in the order in which they begin."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.scale_requests import ScaleIn, ScaleOut, ScaleRequestStatus
from elasticjob_api.scaleplan import ScalePlan, ScalePlanStatus
from msgspec.structs import replace

from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import Action
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import ACTIVE_PHASES
from elasticjob_operator.core.scaling import (
    plan_phases,
    request_status,
)

MAX_WAITING = 500
"""Entries of one job's queue, which the operator reads for each decision about the job."""
QueueItem = ScalePlan | ScaleIn | ScaleOut
"""An entry of the queue: a plan that has not begun, or a ScaleIn or ScaleOut without a plan."""


def is_requested(waiting: Sequence[QueueItem], role: str, size: int) -> bool:
    """Return whether a plan of source Spec with this size of the role is waiting."""
    for item in waiting:
        if isinstance(item, ScalePlan) and item.spec.source == "Spec":
            planned = item.spec.replica_resource_specs.get(role)
            if planned is not None and planned.replicas == size:
                return True
    return False


def active_plan(observed: Observed) -> ScalePlan | None:
    """Return the plan that is being executed; of several, the one that the job's status names."""
    current = observed.job.status.current_plan
    begun = [item for item in observed.plans if item.status.phase in ACTIVE_PHASES]
    return min(
        begun,
        key=lambda item: (item.metadata.name != current, position(observed, item)),
        default=None,
    )


def waiting_items(observed: Observed) -> list[QueueItem]:
    """Return the entries of the queue, in its order."""
    waiting: list[QueueItem] = [
        item for item in observed.plans if item.status.phase in (None, "Pending")
    ]
    waiting += [
        request
        for request in request_status.unfinished_requests(observed)
        if request.status.plan is None and request_status.plan_of(observed, request) is None
    ]
    waiting = [item for item in waiting if item.metadata.deletion_timestamp is None]
    return sorted(waiting, key=lambda item: position(observed, item))


def refuse_newest(
    observed: Observed, waiting: Sequence[QueueItem], now: float
) -> tuple[Sequence[QueueItem], list[Action]]:
    """End the newest entries beyond the bound of the queue.

    Return the queue without them, and the actions.
    """
    job = observed.job
    message = (
        f"spec.jobName: {MAX_WAITING} plans and requests of ElasticJob {job.metadata.name!r} wait "
        "already, and no more can wait; create it again when some of them have ended"
    )
    actions: list[Action] = []
    for item in waiting[MAX_WAITING:]:
        if isinstance(item, ScalePlan):
            actions += plan_phases.end(item, "Failed", message, now)
        else:
            actions += request_status.finish(item, "ScaleFailed", message, now)
    return waiting[:MAX_WAITING], actions


def position(observed: Observed, item: QueueItem) -> tuple[bool, str, str]:
    """Return the sort key: the plan of a ScaleIn or ScaleOut is first, then the time of creation.

    A request of the same second may have a lower UID, and must not remove the members that the plan
    names.
    """
    is_of_request = isinstance(item, ScalePlan) and observed.request_of(item) is not None
    return not is_of_request, item.metadata.creation_timestamp, item.metadata.uid


def first_item(waiting: Sequence[QueueItem], current: str | None) -> QueueItem:
    """Return the entry that begins next: a plan that the job's status names already, or the first.

    `waiting`: without superseded plans.
    """
    for item in waiting:
        if isinstance(item, ScalePlan) and item.metadata.name == current:
            return item
    return waiting[0]


def supersede_auto_plans(
    waiting: Sequence[QueueItem], now: float
) -> tuple[list[Action], Sequence[QueueItem]]:
    """End all waiting Auto plans but the newest, which has the newest measurements.

    Return the queue without them.
    """
    auto = _auto_plans(waiting)
    actions: list[Action] = []
    for old in auto[:-1]:
        actions += plan_phases.end(old, "Superseded", f"by ScalePlan {auto[-1].metadata.name}", now)
    return actions, without_superseded(waiting)


def without_superseded(waiting: Sequence[QueueItem]) -> Sequence[QueueItem]:
    """Return the queue without the Auto plans that a newer one supersedes."""
    superseded = {old.metadata.uid for old in _auto_plans(waiting)[:-1]}
    return [item for item in waiting if item.metadata.uid not in superseded]


def _auto_plans(waiting: Sequence[QueueItem]) -> list[ScalePlan]:
    return [item for item in waiting if isinstance(item, ScalePlan) and item.spec.source == "Auto"]


def mark_pending(waiting: Sequence[QueueItem], message: str, active: ScalePlan) -> list[Action]:
    """Give each new entry of the queue the phase Pending and a message."""
    actions: list[Action] = []
    owners = {owner.uid for owner in active.metadata.owner_references}
    for item in waiting:
        if item.status.phase is not None or item.metadata.uid in owners:
            continue
        status: ScalePlanStatus | ScaleRequestStatus = replace(
            item.status, phase="Pending", message=message
        )
        actions += patches.scaling_status(item, status)
    return actions
