"""The execution of one ScalePlan that has begun.

First the size changes: members to remove are drained while new members start. Then the members that
the plan names are replaced, and resources change: in place, or by replacing one member after the
other. If something is not reached in time, the plan ends early: nothing more is begun, and it ends
with what it has reached.

Everything is computed from the plan's status, so a new operator continues where the last one
stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.scaleplan import PlanPhase, ScalePlan, ScalePlanStatus
from elasticjob_api.times import format_time, parse_time
from msgspec.structs import replace

from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import shortest_wait
from elasticjob_operator.core.model.observed import Observed, Pod
from elasticjob_operator.core.scaling import (
    completion_status,
    drain,
    migration,
    plan_phases,
    progress_messages,
    resize,
    scripts,
    waiting_for,
)
from elasticjob_operator.core.scaling.plan_membership import (
    PlanMembership,
    membership_of,
    with_membership,
)
from elasticjob_operator.core.scaling.scaling_result import ScalingResult

_RESIZE_CHECK_SECONDS = 1.0
"""How often to check whether the kubelets have done the resizes, or have not done them in time."""
_RESIZE_BATCH_SECONDS = 10
"""Seconds; a resize that is requested later than this after the first one restarts the plan's time
for resizes.
"""


def advance(
    observed: Observed, status: ElasticJobStatus, plan: ScalePlan, now: float
) -> ScalingResult:
    """Advance a plan that has begun; return the job's members while it runs, and what to do now."""
    members = membership_of(status, plan)
    failed = migration.failed_replacements(observed, plan)
    staying = {
        role: indices - failed.get(role, frozenset()) for role, indices in members.staying.items()
    }
    result = ScalingResult(with_membership(status, plan, members), staying, members.counted)
    if not completion_status.ends_early(plan.status):
        result.overrides = resize.resources_by_role(plan)
    result.avoided_nodes = migration.avoided_nodes(observed, plan)
    if plan.status.execution_time is None and plan.spec.remove_pods and scripts.is_pending(plan):
        _run_script_before(observed, plan, result, members, now)
    elif plan.status.execution_time is None:
        _drain(observed, plan, result, members, now)
    else:
        _execute(observed, plan, result, members, now)
    return result


def _run_script_before(
    observed: Observed, plan: ScalePlan, result: ScalingResult, members: PlanMembership, now: float
) -> None:
    """Have the script run while all members are at work.

    Then the leaving ones drain, or the plan fails.
    """
    result.counted = {role: result.counted[role] | members.before[role] for role in result.counted}
    result.staying = {role: result.staying[role] | members.before[role] for role in result.staying}
    since = parse_time(plan.status.start_time or format_time(now))
    status = scripts.advance(observed, plan, since, now)
    run = status.script
    if run is None or run.completion_time is None:
        _wait_for_script(plan, result, status, since, now)
    elif run.exit_code == 0:
        status = plan_phases.begin_to_drain(
            observed, plan, status, members.before, members.targets, now
        )
        result.actions += patches.plan_status(plan, status)
    else:
        unchanged = plan_phases.formatted(members.before)
        result.actions += plan_phases.end(
            plan, "Failed", scripts.failure(run), now, status=replace(status, targets=unchanged)
        )


def _run_script_after(
    observed: Observed, plan: ScalePlan, result: ScalingResult, members: PlanMembership, now: float
) -> None:
    """Have the script run when the new members are ready; if it fails, they are removed."""
    since = parse_time(plan.status.execution_time or format_time(now))
    status = scripts.advance(observed, plan, since, now)
    run = status.script
    if run is None or run.completion_time is None:
        _wait_for_script(plan, result, status, since, now)
        return
    if run.exit_code != 0:
        unchanged = plan_phases.formatted(members.before)
        message = f"rolled back: {scripts.failure(run)}"
        status = replace(status, targets=unchanged, message=message, waiting_for="")
    result.actions += patches.plan_status(plan, status)


def _wait_for_script(
    plan: ScalePlan, result: ScalingResult, status: ScalePlanStatus, since: float, now: float
) -> None:
    result.actions += patches.plan_status(plan, status)
    result.requeue_after = scripts.seconds_left(status, plan.spec.timeout_seconds, since, now)


def _drain(
    observed: Observed, plan: ScalePlan, result: ScalingResult, members: PlanMembership, now: float
) -> None:
    """Wait until training in every draining pod has ended or the deadline has passed.

    The master stops the agents.
    """
    waiting = drain.not_drained(observed, set(plan.status.draining_pods))
    roles = {pod.role for pod in observed.pods if pod.name in plan.status.draining_pods}
    allowed = drain.drain_seconds(observed, plan, roles)
    run = plan.status.script
    since = (
        (run.completion_time if run is not None else None)
        or plan.status.start_time
        or format_time(now)
    )
    seconds_left = parse_time(since) + allowed - now
    if waiting and seconds_left > 0:
        result.counted = drain.with_members_of(observed, result.counted, set(waiting))
        status = drain.with_draining_if_worth_a_write(plan.status, waiting)
        text = waiting_for.drains(observed, plan, waiting)
        result.actions += patches.plan_status(plan, replace(status, waiting_for=text))
        result.requeue_after = seconds_left
        return
    status = replace(
        drain.with_draining(plan.status, (), forced=waiting),
        phase="Executing",
        waiting_for=plan_phases.new_members(observed, members.added),
        execution_time=format_time(now),
    )
    result.actions += patches.plan_status(plan, status)


def _execute(
    observed: Observed, plan: ScalePlan, result: ScalingResult, members: PlanMembership, now: float
) -> None:
    """Take the next of these steps.

    Resize in place, wait for new members, replace members, end the plan.
    """
    resizes = resize.progress_of(observed, plan, members, now)
    if completion_status.ends_early(plan.status):
        if migration.in_progress(plan.status):
            _migrate(observed, plan, result, now)
        else:
            _finish_partially(observed, plan, result, members, resizes, now)
    elif resizes.to_request:
        _request_resizes(observed, plan, result, resizes, now)
    elif not_ready := progress_messages.not_ready(observed, members.added):
        if not _may_wait(plan, result, waiting_for.new_members(observed, not_ready), now):
            total = sum(map(len, members.added.values()))
            why = progress_messages.not_ready_message(observed, not_ready, total)
            _time_out(plan, result, members, not_ready, why)
    elif plan.spec.create_pods and scripts.is_pending(plan):
        _run_script_after(observed, plan, result, members, now)
    elif migration.in_progress(plan.status):
        _migrate(observed, plan, result, now)
    elif gone := _not_gone(observed, members):
        if not _may_wait(plan, result, waiting_for.removals(gone), now):
            why = progress_messages.not_reached_message(
                gone, len(gone), "removed pods have not gone"
            )
            _time_out(plan, result, members, [], why)
    elif resizes.pending:
        text = waiting_for.resizes(sorted(pod.name for pod in resizes.pending))
        result.actions += patches.plan_status(plan, replace(plan.status, waiting_for=text))
        result.requeue_after = _RESIZE_CHECK_SECONDS
    elif resizes.impossible:
        pod, why = min(resizes.impossible, key=lambda item: (item[0].role, item[0].index))
        status = migration.begin_next(observed, plan, members, (pod.role, pod.index), why, now)
        result.actions += patches.plan_status(plan, status)
    else:
        _finish(
            observed,
            plan,
            result,
            members,
            "Succeeded",
            completion_status.success_message(plan, members, now),
            now,
        )


def _request_resizes(
    observed: Observed,
    plan: ScalePlan,
    result: ScalingResult,
    resizes: resize.ResizeProgress,
    now: float,
) -> None:
    """Request resizes in place, and before that store in the plan's status which pods and when."""
    status = plan.status
    job_status = observed.job.status
    names = drain.limited([*status.resized_pods, *(pod.name for pod in resizes.to_request)])
    requested_at = status.resize_time
    if requested_at is None or now - parse_time(requested_at) > _RESIZE_BATCH_SECONDS:
        requested_at = format_time(now)
    text = waiting_for.resizes(sorted(pod.name for pod in (*resizes.pending, *resizes.to_request)))
    status = replace(status, waiting_for=text, resized_pods=names, resize_time=requested_at)
    result.actions += patches.plan_status(plan, status)
    for pod in resizes.to_request:
        wanted = resize.resources_of(job_status, plan, pod.role, pod.index)
        result.actions.append(resize.resize_request(observed.job, pod, wanted))


def _migrate(observed: Observed, plan: ScalePlan, result: ScalingResult, now: float) -> None:
    status, due = migration.advance(observed, plan, now)
    status = replace(
        status,
        phase="Draining" if status.draining_pods else "Executing",
        waiting_for=waiting_for.migrations(observed, plan, status),
    )
    result.actions += patches.plan_status(plan, status)
    result.requeue_after = shortest_wait(result.requeue_after, due)


def _may_wait(plan: ScalePlan, result: ScalingResult, text: str, now: float) -> bool:
    """Wait, and say for what (`text`), unless the plan's time is over; return whether it waits."""
    since = max(
        plan.status.execution_time or "", *(move.since or "" for move in plan.status.migrations), ""
    )
    seconds_left = parse_time(since) + plan.spec.timeout_seconds - now
    if seconds_left > 0:
        result.actions += patches.plan_status(plan, replace(plan.status, waiting_for=text))
        result.requeue_after = seconds_left
    return seconds_left > 0


def _time_out(
    plan: ScalePlan,
    result: ScalingResult,
    members: PlanMembership,
    not_ready: Sequence[progress_messages.MemberKey],
    problem: str,
) -> None:
    """Make the plan end early because its time is over, with a rollback of new members if it says so."""
    message = f"after timeoutSeconds {plan.spec.timeout_seconds}: {problem}"
    targets = members.targets
    if plan.spec.on_timeout == "Rollback" and not_ready:
        message = f"rolled back {message}"
        targets = completion_status.rollback_targets(members, not_ready)
    formatted = plan_phases.formatted(targets)
    result.actions += patches.plan_status(
        plan, replace(plan.status, targets=formatted, message=message, waiting_for="")
    )


def _finish_partially(
    observed: Observed,
    plan: ScalePlan,
    result: ScalingResult,
    members: PlanMembership,
    resizes: resize.ResizeProgress,
    now: float,
) -> None:
    """Undo the resizes that were not done, store what was reached, and end the plan."""
    left_out = [*resizes.to_request, *resizes.pending, *(pod for pod, _ in resizes.impossible)]
    if back := resize.undo_requests(observed, plan, left_out):
        result.actions += back
        return
    phase, message = completion_status.partial_result(observed, plan, members, resizes, left_out)
    _finish(observed, plan, result, members, phase, message, now, left_out=left_out)


def _finish(
    observed: Observed,
    plan: ScalePlan,
    result: ScalingResult,
    members: PlanMembership,
    phase: PlanPhase,
    message: str,
    now: float,
    *,
    left_out: Sequence[Pod] = (),
) -> None:
    """Store sizes and resources first, then end the plan.

    After a crash in between, repeating both has no effect.
    """
    if write_back := completion_status.write_back_replicas(observed, plan, members):
        result.actions += write_back
        return
    if phase == "Succeeded":
        result.status = completion_status.with_role_resources(result.status, plan, observed.pods)
    else:
        result.status = completion_status.with_resources_by_index(
            result.status, resize.resources_reached(observed, plan, members, left_out)
        )
    pods = [pod for pod in observed.pods if pod not in left_out]
    result.actions += plan_phases.end(plan, phase, message, now, pods=pods)


def _not_gone(observed: Observed, members: PlanMembership) -> list[str]:
    """Return the pods of members that the plan has removed or replaced."""
    return sorted(
        pod.name
        for pod in observed.pods
        if pod.role in members.indices and pod.index not in members.indices[pod.role]
    )
