"""The queue of one job's plans: which ScalePlan is next, and when a request or an edit becomes one.

ScalePlans, and ScaleIns and ScaleOuts without a plan, wait in one queue by time of creation. The
operator creates the plan of a ScaleIn or ScaleOut only when the request is first in the queue, so
that its count is relative to the size at that time. Such a plan, which names members, then comes
before everything else that waits. For an edit of the spec the operator creates a plan at once, also
while another plan runs, so that later requests come after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.indices import IndexSet, parse_indices
from elasticjob_api.scale_requests import ScaleIn, ScaleOut
from elasticjob_api.scaleplan import ScalePlan
from msgspec.structs import replace

from elasticjob_operator.core.members import terminations
from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import Action, CreatePlan, shortest_wait
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import (
    PlanRefused,
    ResolvedPlan,
    current_indices,
)
from elasticjob_operator.core.scaling import (
    deleted_plan,
    disruption,
    execution,
    plan_manifests,
    plan_phases,
    request_status,
)
from elasticjob_operator.core.scaling.ended_plans import delete_old_plans
from elasticjob_operator.core.scaling.plan_membership import without_plan
from elasticjob_operator.core.scaling.resolve import resolve
from elasticjob_operator.core.scaling.scaling_result import ScalingResult
from elasticjob_operator.core.scaling.waiting_queue import (
    QueueItem,
    active_plan,
    first_item,
    is_requested,
    mark_pending,
    refuse_newest,
    supersede_auto_plans,
    waiting_items,
)

WhyPlanWaits = Callable[[ResolvedPlan], str]
"""Returns why the first plan of the queue must wait; empty if it may begin."""


def advance_scaling(
    observed: Observed,
    status: ElasticJobStatus,
    now: float,
    *,
    why_waits: WhyPlanWaits = lambda _: "",
) -> ScalingResult:
    """Advance the plan that is being executed; if there is none, begin or create the next one.

    A plan for which `why_waits` returns a text stays in the queue, with this text as its message.
    """
    active = active_plan(observed)
    orphans = request_status.delete_orphaned_plans(observed)
    waiting, refusals = refuse_newest(observed, waiting_items(observed), now)
    if active is not None and all(action.uid != active.metadata.uid for action in orphans):
        result = _advance_active(observed, status, active, waiting, now)
    elif orphans:
        result = members_at_rest(status)
    else:
        result = _start_next(observed, without_plan(status), waiting, now, why_waits)
    expired, expiry_due = request_status.delete_expired(observed.requests.values(), now)
    replacements, condition_due = disruption.plans_for_node_conditions(observed, now)
    actions = (
        # A ScaleIn or ScaleOut names its plan before the plan begins, so that deleting the plan
        # from then on cancels it.
        *request_status.copy_plan_status(observed, now),
        *refusals,
        *result.actions,
        *orphans,
        *disruption.plans_for_disruptions(observed),
        *replacements,
        *expired,
        *delete_old_plans(observed),
    )
    requeue_after = shortest_wait(result.requeue_after, expiry_due, condition_due)
    result = dataclasses.replace(result, actions=actions, requeue_after=requeue_after)
    return _without_removed_roles(result)


def members_at_rest(status: ElasticJobStatus) -> ScalingResult:
    """Return the result of a job without a running plan: every member of its roles stays."""
    indices = current_indices(status)
    return _without_removed_roles(ScalingResult(status, indices, indices))


def _without_removed_roles(result: ScalingResult) -> ScalingResult:
    """Return the result in which no member of a removed role is replaced or counted.

    Also before a plan removes its members.
    """
    removed = {
        role: IndexSet()
        for role, replica in result.status.replica_statuses.items()
        if replica.removed
    }
    return dataclasses.replace(
        result, staying={**result.staying, **removed}, counted={**result.counted, **removed}
    )


def _advance_active(
    observed: Observed,
    status: ElasticJobStatus,
    active: ScalePlan,
    waiting: Sequence[QueueItem],
    now: float,
) -> ScalingResult:
    name = active.metadata.name
    result = execution.advance(observed, replace(status, current_plan=name), active, now)
    return _with_actions(
        result,
        [
            *result.actions,
            *mark_pending(waiting, f"waits for ScalePlan {name}", active),
            *_plan_for_edit(observed, waiting, _edits_meanwhile(observed, active)),
        ],
    )


def _start_next(
    observed: Observed,
    status: ElasticJobStatus,
    waiting: Sequence[QueueItem],
    now: float,
    why_waits: WhyPlanWaits,
) -> ScalingResult:
    """Begin the first plan of the queue.

    Or create the ScalePlan for an edit of the spec, or for the ScaleIn or ScaleOut that is first.
    """
    result = members_at_rest(status)
    existing = {item.metadata.name for item in observed.plans}
    if status.current_plan is not None and status.current_plan not in existing:
        status, actions = deleted_plan.return_to_former_size(observed, status)
        return _with_actions(dataclasses.replace(result, status=status), actions)
    edits = plan_manifests.edited_replicas(observed.job, status)
    if create := _plan_for_edit(observed, waiting, edits):
        return _with_actions(result, create)
    superseded, waiting = supersede_auto_plans(waiting, now)
    if not waiting:
        return _with_actions(_without_current_plan(result), superseded)
    if terminations.are_to_be_counted(observed):
        # Who has ended decides which members leave, so this decision counts them first.
        return _with_actions(result, superseded)
    head = first_item(waiting, status.current_plan)
    prepare = [*superseded, *patches.adoption(observed.job, head)]
    if prepare:
        # These change resourceVersions, which the writes that follow have as a precondition. And a
        # request that has begun must not outlive the job, for another one of its name.
        return _with_actions(result, prepare)
    if not isinstance(head, ScalePlan):
        return _with_actions(result, _plan_for_request(observed, head, now))
    if request_status.is_unrecorded(observed, head):
        # The request names its plan first. Otherwise, if a user deleted the plan now, the request
        # would get another one.
        return result
    return _begin_plan(observed, result, head, waiting, now, why_waits)


def _plan_for_request(observed: Observed, request: ScaleIn | ScaleOut, now: float) -> list[Action]:
    try:
        return [CreatePlan(plan_manifests.plan_for_request(observed, request))]
    except PlanRefused as refusal:
        return [*request_status.finish(request, "ScaleFailed", str(refusal), now)]


def _begin_plan(
    observed: Observed,
    result: ScalingResult,
    head: ScalePlan,
    waiting: Sequence[QueueItem],
    now: float,
    why_waits: WhyPlanWaits,
) -> ScalingResult:
    if head.spec.source == "Disruption":
        needed = disruption.as_needed_now(observed, head, now)
        if disruption.is_empty(needed):
            end = plan_phases.end(head, "Cancelled", disruption.why_empty(observed, head), now)
            return _with_actions(_without_current_plan(result), end)
        head = needed
    try:
        resolved = resolve(observed.job, observed.pods, head)
    except PlanRefused as refusal:
        end = plan_phases.end(head, "Failed", str(refusal), now)
        return _with_actions(_without_current_plan(result), end)
    later = [item for item in waiting if item is not head]
    result = dataclasses.replace(result, planned=resolved)
    if why := why_waits(resolved):
        return _keep_waiting(observed, result, head, later, why, now, why_waits)
    roles = observed.job.spec.replica_specs
    edited = [role for role, spec in roles.items() if is_requested(later, role, spec.size)]
    if plan_manifests.is_return_plan(observed.job, head.metadata.name):
        edited += [
            role for role, indices in resolved.targets.items() if len(indices) != roles[role].size
        ]
    status, begin, announcement = plan_phases.begin(observed, head, resolved, now, edited=edited)
    # Its members get their pods in this decision; what else its first step does waits for the next.
    begun = execution.advance(
        observed,
        replace(result.status, current_plan=head.metadata.name),
        replace(head, status=status),
        now,
    )
    return dataclasses.replace(begun, planned=resolved, first=begin, actions=(announcement,))


def _keep_waiting(
    observed: Observed,
    result: ScalingResult,
    head: ScalePlan,
    later: Sequence[QueueItem],
    why: str,
    now: float,
    why_waits: WhyPlanWaits,
) -> ScalingResult:
    """Leave the first plan in the queue, and write why into its status.

    A plan for an edit ends if the user has edited the size again since then. Meanwhile members must
    be able to leave their nodes, which changes no size, and for jobs of higher rank. So plans for
    that do not wait. A plan of a pool whose room is gone ends: the pool decides again. One that
    waits for quota of Kueue ends when anybody else has a plan.
    """
    roles = observed.job.spec.replica_specs
    if result.status.current_plan != head.metadata.name:
        result = _without_current_plan(result)  # the one before has ended
    if head.spec.source == "Pool" and (later or observed.share is not None):
        end = plan_phases.end(head, "Superseded", why, now)
        return _with_actions(dataclasses.replace(result, planned=None), end)
    for role, entry in head.spec.replica_resource_specs.items():
        if head.spec.source == "Spec" and entry.replicas not in (None, roles[role].size):
            message = f"spec.replicaSpecs.{role}.replicas is {roles[role].size} by now"
            end = plan_phases.end(head, "Superseded", message, now)
            return _with_actions(dataclasses.replace(result, planned=None), end)
    actions = [
        *patches.scaling_status(head, replace(head.status, phase="Pending", message=why)),
        *mark_pending(later, f"waits for ScalePlan {head.metadata.name}", head),
    ]
    passing = [
        item
        for item in later
        if isinstance(item, ScalePlan) and item.spec.source in ("Disruption", "Pool")
    ]
    if actions or not passing:
        return _with_actions(result, actions)
    first = passing[0]
    if first.spec.source == "Disruption":
        begun = _begin_plan(observed, result, first, [first], now, lambda _: "")
    else:
        begun = _begin_plan(observed, result, first, [head, *later], now, why_waits)
    return dataclasses.replace(begun, planned=result.planned)


def _plan_for_edit(
    observed: Observed, waiting: Sequence[QueueItem], edits: dict[str, int]
) -> list[Action]:
    """Return the creation of a plan for edits of the spec.

    Empty if a plan for them waits already, or if this spec has had its plan.
    """
    new = {role: size for role, size in edits.items() if not is_requested(waiting, role, size)}
    if not new:
        return []
    existing = {item.metadata.name: item for item in observed.plans}
    plan = existing.get(plan_manifests.spec_plan_name(observed.job))
    if plan is None:
        return [CreatePlan(plan_manifests.plan_for_edit(observed.job, edits))]
    for role, size in new.items():
        # This spec has had a plan, but not for this role: a role that is added again begins when
        # the former one of its name has no pods any more.
        replica = observed.job.status.replica_statuses[role]
        planned = plan.spec.replica_resource_specs.get(role)
        is_in_plan = planned is not None and planned.replicas == size
        is_without_members = replica.removed or replica.desired == 0
        name = plan_manifests.role_plan_name(observed.job, role)
        if is_without_members and not is_in_plan and name not in existing:
            return [CreatePlan(plan_manifests.plan_for_edit(observed.job, {role: size}, name))]
    return []


def _edits_meanwhile(observed: Observed, active: ScalePlan) -> dict[str, int]:
    """Return the replicas that users have written since the active plan began."""
    sizes = {role: len(parse_indices(indices)) for role, indices in active.status.targets.items()}
    edits = {
        role: spec.size
        for role, spec in observed.job.spec.replica_specs.items()
        if role in active.status.spec_replicas
        and spec.size not in (active.status.spec_replicas[role], sizes.get(role))
    }
    unknown = plan_manifests.edited_replicas(observed.job, observed.job.status)
    return edits | {role: size for role, size in unknown.items() if role not in sizes}


def _without_current_plan(result: ScalingResult) -> ScalingResult:
    return dataclasses.replace(result, status=replace(result.status, current_plan=None))


def _with_actions(result: ScalingResult, actions: Sequence[Action]) -> ScalingResult:
    return dataclasses.replace(result, actions=tuple(actions))
