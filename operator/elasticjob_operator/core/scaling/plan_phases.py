"""Changes the phase of a plan: it begins, its members begin to drain, it ends.

When a plan begins, its resolved members are stored. So a new operator continues exactly with these,
even if the job has changed.
"""

from __future__ import annotations

from collections.abc import Collection

from elasticjob_api.indices import format_indices
from elasticjob_api.scaleplan import MAX_CHANGE, PlanPhase, ScalePlan, ScalePlanStatus
from elasticjob_api.times import format_time
from msgspec.structs import replace

from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import Action, EmitEvent, PatchStatus
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import Indices, ResolvedPlan
from elasticjob_operator.core.model.pods import Pods
from elasticjob_operator.core.scaling import (
    completion_status,
    drain,
    progress_messages,
)


def begin(
    observed: Observed,
    plan: ScalePlan,
    resolved: ResolvedPlan,
    now: float,
    *,
    edited: Collection[str],
) -> tuple[ScalePlanStatus, list[PatchStatus], EmitEvent]:
    """Return the status of a plan that begins, its write, and the event that announces it.

    The status has the resolved plan, which every operator then executes. The plan does not write
    its size to the replicas of `edited` roles, which a later plan applies.
    """
    change = completion_status.description(
        resolved.before, resolved.targets, resolved.resources, len(resolved.migrations)
    )
    status = replace(
        plan.status,
        message="",
        change=change[:MAX_CHANGE],
        before=formatted(resolved.before),
        targets=formatted(resolved.targets),
        spec_replicas={
            role: observed.job.spec.replica_specs[role].size
            for role in resolved.targets
            if role not in edited
        },
        resources_by_index={
            role: {str(index): wanted for index, wanted in by_index.items()}
            for role, by_index in resolved.resources_by_index.items()
        },
        migrations=list(resolved.migrations),
        start_time=format_time(now),
    )
    if plan.spec.script and plan.spec.remove_pods:
        status = replace(status, phase="Executing", waiting_for="the script")
    else:
        status = begin_to_drain(observed, plan, status, resolved.before, resolved.targets, now)
    why = f"; {plan.spec.reason}" if plan.spec.reason else ""
    note = f"{plan.metadata.name} ({plan.spec.source}): {change}{why}"
    event = EmitEvent("ScalingStarted", note, action="Scale", plan=plan.metadata)
    return status, patches.scaling_status(plan, status), event


def begin_to_drain(
    observed: Observed,
    plan: ScalePlan,
    status: ScalePlanStatus,
    before: Indices,
    targets: Indices,
    now: float,
) -> ScalePlanStatus:
    """Return the plan's status when members begin to drain; without any, the next step begins."""
    leaving = {role: indices - targets[role] for role, indices in before.items()}
    added = {role: indices - before[role] for role, indices in targets.items()}
    removed = list(observed.pods.of_members(leaving))
    draining = drain.pods_to_drain(observed.job, removed)
    return replace(
        status,
        phase="Draining" if draining else "Executing",
        waiting_for=(
            progress_messages.awaited_drains(observed, plan, draining)
            or progress_messages.awaited_members(
                observed, progress_messages.not_ready(observed, added)
            )
        ),
        draining_pods=draining,
        removed_pods=drain.limited({pod.name for pod in removed}.difference(draining)),
        execution_time=None if draining else format_time(now),
    )


def end(
    plan: ScalePlan,
    phase: PlanPhase,
    message: str,
    now: float,
    *,
    pods: Pods | None = None,
    status: ScalePlanStatus | None = None,
) -> list[Action]:
    """Return the write of the plan's final phase, and the event that announces it.

    `status` is the plan's new status so far.
    """
    status = completion_status.final_status(
        status or plan.status, phase, message, now, pods=pods or Pods()
    )
    note = f"{plan.metadata.name}: {phase}"
    if message:
        note += f": {message}"
    bad = phase in ("Failed", "PartiallySucceeded")
    event = EmitEvent(f"Scaling{phase}", note, action="Scale", warning=bad, plan=plan.metadata)
    return [*patches.scaling_status(plan, status), event]


def formatted(members: Indices) -> dict[str, str]:
    """Return the members of each role as a status has them."""
    return {role: format_indices(indices) for role, indices in members.items()}
