"""The queue of one job's plans.

Which ScalePlan is next, and when ScaleIns, ScaleOuts and edits of the spec become one. ScalePlans,
and ScaleIns and ScaleOuts without a plan, wait in one queue by time of creation. A plan is made for
a ScaleIn or ScaleOut only when it is first in the queue, so that its count is relative to the size
at that time. For an edit of the spec one is made at once, also while another plan runs, so that
later requests come after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.indices import parse_indices
from elasticjob_api.scaleplan import FINISHED, PlanPhase, ScalePlan
from elasticjob_api.scalers import ScaleIn, ScaleOut
from msgspec.structs import replace

from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import Action, CreatePlan, EmitEvent, shortest_wait
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import PlanRefused, ResolvedPlan, current_indices
from elasticjob_operator.core.scaling import (
    completion_status,
    deleted_plan,
    disruption,
    execution,
    node_conditions,
    plan_manifests,
    plan_phases,
    request_status,
    resize,
)
from elasticjob_operator.core.scaling.plan_membership import without_plan
from elasticjob_operator.core.scaling.resolve import resolve
from elasticjob_operator.core.scaling.scaling_result import ScalingResult

_ACTIVE_PHASES = ("Draining", "Executing")
QueueItem = ScalePlan | ScaleIn | ScaleOut
"""What waits in the queue: a plan that has not begun, or a ScaleIn or ScaleOut that has no plan
yet.
"""
WhyPlanWaits = Callable[[ResolvedPlan], str]
"""Why a plan does not begin although it is its turn; empty where it does."""


def advance_scaling(
    observed: Observed,
    status: ElasticJobStatus,
    now: float,
    *,
    why_waits: WhyPlanWaits = lambda _: "",
) -> ScalingResult:
    """Advance the plan that is being executed.

    If there is none, begin the next one or create its ScalePlan.
    A plan for which `why_waits` returns a text stays in the queue, with this text as its message.
    """
    active = _active_plan(observed)
    orphans = request_status.delete_orphaned_plans(observed)
    if active is not None and not any(action.uid == active.metadata.uid for action in orphans):
        result = execution.advance(
            observed, replace(status, current_plan=active.metadata.name), active, now
        )
        waiting = _waiting(observed)
        result.actions += _mark_pending(
            waiting, f"waits for ScalePlan {active.metadata.name}", active
        )
        result.actions += _plan_for_edit(observed, waiting, _edits_meanwhile(observed, active))
    else:
        indices = current_indices(status)
        result = ScalingResult(status, indices, indices)
        if not orphans:
            result.status = without_plan(status)
            result.actions += _start_next(observed, result, now, why_waits)
    _leave_out_removed_roles(result)
    old, due = request_status.delete_expired(request_status.all_scalers(observed), now)
    result.requeue_after = shortest_wait(result.requeue_after, due)
    # A ScaleIn or ScaleOut names its plan before the plan begins, so that deleting the plan from
    # then on cancels it.
    result.actions[:0] = request_status.copy_plan_status(observed, now)
    replacements, due = node_conditions.plans_for_node_conditions(observed, now)
    result.requeue_after = shortest_wait(result.requeue_after, due)
    result.actions += [*orphans, *disruption.plans_for_disruptions(observed), *replacements]
    result.actions += [*old, *_delete_old_plans(observed)]
    return result


def _leave_out_removed_roles(result: ScalingResult) -> None:
    """Have nobody of a role that is removed replaced or counted, also before a plan removes its members."""
    removed = {
        role: frozenset[int]()
        for role, replica in result.status.replica_statuses.items()
        if replica.removed
    }
    if removed:
        result.staying = {**result.staying, **removed}
        result.counted = {**result.counted, **removed}


def end_plans_and_requests(observed: Observed, reason: str, now: float) -> list[Action]:
    """End all plans and requests that wait or run, because the job cannot be scaled any more.

    `reason` says why.
    Those that have no owner get the job as theirs before, so that they do not outlive it.
    """
    adoptions = [
        adoption
        for item in (*observed.plans, *request_status.all_scalers(observed))
        if item.metadata.deletion_timestamp is None
        for adoption in patches.adoption(observed.job, item)
    ]
    if adoptions:
        return list(
            adoptions
        )  # they change resourceVersions, which the writes below have as a precondition
    actions: list[Action] = []
    for item in observed.plans:
        if item.metadata.deletion_timestamp is None and item.status.phase not in FINISHED:
            phase: PlanPhase = "Cancelled" if item.status.start_time else "Failed"
            actions += plan_phases.end(item, phase, reason, now, pods=observed.pods)
    for scaler in request_status.unfinished_scalers(observed):
        if request_status.plan_of(observed, scaler) is None:
            actions += request_status.finish(scaler, "ScaleFailed", reason, now)
    old, _ = request_status.delete_expired(request_status.all_scalers(observed), now)
    return [
        *actions,
        *request_status.copy_plan_status(observed, now),
        *old,
        *_delete_old_plans(observed),
    ]


def _active_plan(observed: Observed) -> ScalePlan | None:
    begun = [item for item in observed.plans if item.status.phase in _ACTIVE_PHASES]
    return min(
        begun,
        key=lambda item: (
            item.metadata.name != observed.job.status.current_plan,
            _position(observed, item),
        ),
        default=None,
    )


def _start_next(
    observed: Observed, result: ScalingResult, now: float, why_waits: WhyPlanWaits
) -> list[Action]:
    """Begin the first plan of the queue, or create a ScalePlan for an edit of the spec, a ScaleIn or a ScaleOut."""
    waiting = _waiting(observed)
    existing = {item.metadata.name for item in observed.plans}
    edits = plan_manifests.edited_replicas(observed.job, result.status)
    if result.status.current_plan is not None and result.status.current_plan not in existing:
        return _after_plan_deleted(observed, result)
    if create := _plan_for_edit(observed, waiting, edits):
        return create
    actions, waiting = _supersede_auto_plans(waiting, now)
    if not waiting:
        result.status = replace(result.status, current_plan=None)
        return actions
    current = result.status.current_plan
    claimed = [
        item for item in waiting if isinstance(item, ScalePlan) and item.metadata.name == current
    ]
    head = (claimed or waiting)[0]
    actions += patches.adoption(observed.job, head)
    if actions and any(not isinstance(action, EmitEvent) for action in actions):
        # these change resourceVersions, which the writes that follow have as a precondition
        return actions
    if isinstance(head, ScalePlan) and request_status.is_unrecorded(observed, head):
        # the request names its plan first; else, if the plan were deleted now, it would get another
        return actions
    if isinstance(head, ScalePlan):
        return _begin_plan(observed, result, head, waiting, now, why_waits)
    try:
        return [CreatePlan(plan_manifests.plan_for_scaler(observed, head))]
    except PlanRefused as refusal:
        return [*request_status.finish(head, "ScaleFailed", str(refusal), now)]


def _begin_plan(
    observed: Observed,
    result: ScalingResult,
    head: ScalePlan,
    waiting: Sequence[QueueItem],
    now: float,
    why_waits: WhyPlanWaits,
) -> list[Action]:
    if head.spec.source == "Disruption":
        head = disruption.without_gone_pods(observed, head)
        if disruption.is_empty(head):
            result.status = replace(result.status, current_plan=None)
            return plan_phases.end(
                head, "Cancelled", "its pods are gone or leaving already; they are replaced", now
            )
    try:
        resolved = resolve(observed.job, observed.pods, head)
    except PlanRefused as refusal:
        result.status = replace(result.status, current_plan=None)
        return plan_phases.end(head, "Failed", str(refusal), now)
    later = [item for item in waiting if item is not head]
    result.planned = resolved
    if why := why_waits(resolved):
        return _keep_waiting(observed, result, head, later, why, now)
    result.status = replace(result.status, current_plan=head.metadata.name)
    roles = observed.job.spec.replica_specs
    edited = [role for role, spec in roles.items() if _is_requested(later, role, spec.size)]
    if plan_manifests.is_return_plan(observed.job, head.metadata.name):
        edited += [
            role for role, indices in resolved.targets.items() if len(indices) != roles[role].size
        ]
    return plan_phases.begin(observed, head, resolved, now, edited=edited)


def _keep_waiting(
    observed: Observed,
    result: ScalingResult,
    head: ScalePlan,
    later: Sequence[QueueItem],
    why: str,
    now: float,
) -> list[Action]:
    """Leave the first plan in the queue, and say why.

    What its user has changed since then is not waited for. Members must be able to leave their
    nodes meanwhile, which changes no size: so a plan for that does not wait.
    """
    roles = observed.job.spec.replica_specs
    for role, entry in head.spec.replica_resource_specs.items():
        if head.spec.source == "Spec" and entry.replicas not in (None, roles[role].size):
            result.planned = None
            message = f"spec.replicaSpecs.{role}.replicas is {roles[role].size} by now"
            return plan_phases.end(head, "Superseded", message, now)
    actions: list[Action] = [
        *patches.plan_status(head, replace(head.status, phase="Pending", message=why))
    ]
    actions += _mark_pending(later, f"waits for ScalePlan {head.metadata.name}", head)
    leaving = [
        item for item in later if isinstance(item, ScalePlan) and item.spec.source == "Disruption"
    ]
    if not actions and leaving:
        planned = result.planned
        actions = _begin_plan(observed, result, leaving[0], leaving[:1], now, lambda _: "")
        result.planned = planned
    return actions


def _plan_for_edit(
    observed: Observed, waiting: Sequence[QueueItem], edits: dict[str, int]
) -> list[Action]:
    """Return the creation of a plan for edits of the spec, unless they wait already or this spec has had its plan."""
    new = {role: size for role, size in edits.items() if not _is_requested(waiting, role, size)}
    if not new:
        return []
    existing = {item.metadata.name: item for item in observed.plans}
    plan = existing.get(plan_manifests.spec_plan_name(observed.job))
    if plan is None:
        return [CreatePlan(plan_manifests.plan_for_edit(observed.job, edits))]
    for role, size in new.items():
        # This spec has had a plan, but not for it: one that is added again begins when the former
        # one has gone.
        replica = observed.job.status.replica_statuses[role]
        planned = plan.spec.replica_resource_specs.get(role)
        is_left = (replica.removed or replica.desired == 0) and (
            planned is None or planned.replicas != size
        )
        name = plan_manifests.role_plan_name(observed.job, role)
        if is_left and name not in existing:
            return [CreatePlan(plan_manifests.plan_for_edit(observed.job, {role: size}, name))]
    return []


def _edits_meanwhile(observed: Observed, active: ScalePlan) -> dict[str, int]:
    """Return the replicas that users have written to the spec since the active plan began, also of added roles."""
    sizes = {role: len(parse_indices(indices)) for role, indices in active.status.targets.items()}
    edits = {
        role: spec.size
        for role, spec in observed.job.spec.replica_specs.items()
        if role in active.status.spec_replicas
        and spec.size not in (active.status.spec_replicas[role], sizes.get(role))
    }
    unknown = plan_manifests.edited_replicas(observed.job, observed.job.status)
    return edits | {role: size for role, size in unknown.items() if role not in sizes}


def _after_plan_deleted(observed: Observed, result: ScalingResult) -> list[Action]:
    """After the plan that was being executed was deleted.

    Create a plan that restores the size in the job's spec. The new plan's name is stored in the
    job's status first, so that it is created once and executed before all others.
    """
    deleted = result.status.current_plan or ""
    sizes = deleted_plan.sizes_to_return_to(observed)
    result.status = completion_status.with_resources_by_index(
        result.status, resize.unrecorded_resources(observed)
    )
    if not sizes:
        result.status = replace(result.status, current_plan=None)
    else:
        result.status = deleted_plan.with_sizes_of(result.status, observed.job.status)
        if not plan_manifests.is_return_plan(observed.job, deleted):
            result.status = replace(
                result.status, current_plan=plan_manifests.return_plan_name(observed.job)
            )
    note = f"{deleted} was deleted while it was being executed"
    if sizes:
        text = ", ".join(f"{role} {size}" for role, size in sizes.items())
        is_of_spec = all(
            observed.job.spec.replica_specs[role].size == size for role, size in sizes.items()
        )
        note += f"; the job goes back to {text}, the replicas {'of its spec' if is_of_spec else 'it had'}"
    actions: list[Action] = []
    if deleted != result.status.current_plan:
        actions.append(EmitEvent("ScalingCancelled", note, action="Scale", warning=True))
    if sizes:
        name = result.status.current_plan or ""
        actions.append(CreatePlan(plan_manifests.plan_for_sizes(observed.job, sizes, name, note)))
    return actions


def _is_requested(waiting: Sequence[QueueItem], role: str, size: int) -> bool:
    """Whether a plan of source Spec with this size of the role is waiting."""
    return any(
        isinstance(item, ScalePlan)
        and item.spec.source == "Spec"
        and (role_plan := item.spec.replica_resource_specs.get(role)) is not None
        and role_plan.replicas == size
        for item in waiting
    )


def _waiting(observed: Observed) -> list[QueueItem]:
    """Return what waits, in the order of the queue."""
    waiting: list[QueueItem] = [
        item for item in observed.plans if item.status.phase in (None, "Pending")
    ]
    waiting += [
        scaler
        for scaler in request_status.unfinished_scalers(observed)
        if scaler.status.plan is None and request_status.plan_of(observed, scaler) is None
    ]
    waiting = [item for item in waiting if item.metadata.deletion_timestamp is None]
    return sorted(waiting, key=lambda item: _position(observed, item))


def _position(observed: Observed, item: QueueItem) -> tuple[str, str]:
    """Return the sort key: the time of creation.

    The plan of a ScaleIn or ScaleOut has the position of its owner.
    """
    first: QueueItem = item
    if isinstance(item, ScalePlan):
        owners = (s for s in request_status.all_scalers(observed) if patches.is_plan_of(item, s))
        first = next(owners, item)
    return first.metadata.creation_timestamp, first.metadata.uid


def _supersede_auto_plans(
    waiting: list[QueueItem], now: float
) -> tuple[list[Action], list[QueueItem]]:
    """End all waiting Auto plans but the newest, which has the newest measurements.

    Return the queue without them.
    """
    auto = [item for item in waiting if isinstance(item, ScalePlan) and item.spec.source == "Auto"]
    actions: list[Action] = []
    for old in auto[:-1]:
        actions += plan_phases.end(old, "Superseded", f"by ScalePlan {auto[-1].metadata.name}", now)
    return actions, [item for item in waiting if item not in auto[:-1]]


def _mark_pending(waiting: Sequence[QueueItem], message: str, active: ScalePlan) -> list[Action]:
    """Give everything new in the queue the phase Pending and a message that says what it waits for."""
    actions: list[Action] = []
    owners = {owner.uid for owner in active.metadata.owner_references}
    for item in waiting:
        if item.status.phase is not None or item.metadata.uid in owners:
            continue
        if isinstance(item, ScalePlan):
            actions += patches.plan_status(
                item, replace(item.status, phase="Pending", message=message)
            )
        else:
            actions += patches.scaler_status(
                item, replace(item.status, phase="Pending", message=message)
            )
    return actions


def _delete_old_plans(observed: Observed) -> list[Action]:
    """Delete finished plans beyond the history limit.

    Kept are the plans of unfinished requests, the plans of the latest edit of the spec, disruption
    plans whose pods exist, and the current plan of the job's status, which would otherwise look as
    if somebody had deleted it.
    """
    unfinished = {scaler.metadata.uid for scaler in request_status.unfinished_scalers(observed)}
    job = observed.job
    of_spec = {plan_manifests.role_plan_name(job, role) for role in job.spec.replica_specs}
    of_spec.add(plan_manifests.spec_plan_name(job))
    kept = {*of_spec, job.status.current_plan, *disruption.plans_to_keep(observed)}
    finished = [
        item
        for item in observed.plans
        if item.status.phase in FINISHED
        and item.metadata.deletion_timestamp is None
        and item.metadata.name not in kept
        and not any(owner.uid in unfinished for owner in item.metadata.owner_references)
    ]
    return [*request_status.delete_oldest(finished, keep=job.spec.run_policy.plan_history_limit)]
