"""The queue of one job: which ScalePlan is next, and what becomes of ScaleIns, ScaleOuts and edits of the spec.

Plans and not yet translated ScaleIns and ScaleOuts wait in one line, by creation. A ScaleIn or ScaleOut is translated
when it is its turn, so that its count is relative to the size that is then there.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.scaleplan import FINISHED, PlanPhase, ScalePlan
from elasticjob_api.scalers import ScaleIn, ScaleOut, ScalerPhase
from msgspec.structs import replace

from elasticjob_operator.core import execution, patches, plan, translate
from elasticjob_operator.core.actions import Action, CreatePlan, DeletePlan, EmitEvent, PatchStatus
from elasticjob_operator.core.clock import format_time
from elasticjob_operator.core.execution import Step
from elasticjob_operator.core.observed import Observed

HISTORY = 10
_BEGUN = ("Draining", "Executing")
_SCALER_DONE = ("ScaleSucceeded", "ScaleFailed")
Waiting = ScalePlan | ScaleIn | ScaleOut


def scale(seen: Observed, status: ElasticJobStatus, now: float) -> Step:
    """Take the next step of whatever changes the size of the job."""
    active = _active(seen)
    if active is not None:
        step = execution.advance(seen, replace(status, current_plan=active.metadata.name), active, now)
        step.actions += _wait(seen, f"waits for ScalePlan {active.metadata.name}", active)
    else:
        step = Step(status, plan.current_indices(status))
        step.actions += _start_next(seen, step, now)
    step.actions += _follow(seen, now)
    step.actions += _prune(seen)
    return step


def end_all(seen: Observed, reason: str, now: float) -> list[Action]:
    """End everything that still waits or runs, because the job cannot be scaled any more: `reason` says why."""
    actions: list[Action] = []
    for item in seen.plans:
        if item.metadata.deletion_timestamp is None and item.status.phase not in FINISHED:
            phase: PlanPhase = "Cancelled" if item.status.start_time else "Failed"
            actions += execution.end(item, phase, reason, now, pods=seen.pods)
    for scaler in _scalers(seen):
        if _plan_of(seen, scaler) is None:
            actions += _scaler_done(scaler, "ScaleFailed", reason, now)
    return [*actions, *_follow(seen, now), *_prune(seen)]


def refuse_for_want_of_job(name: str, namespace: str, waiting: Sequence[Waiting], now: float) -> list[PatchStatus]:
    """End what names a job that does not exist."""
    message = f"spec.jobName: there is no ElasticJob {name!r} in namespace {namespace!r}"
    writes: list[PatchStatus] = []
    for item in waiting:
        if item.metadata.deletion_timestamp is not None:
            continue
        if isinstance(item, ScalePlan):
            if item.status.phase not in FINISHED:
                ended = replace(item.status, phase="Failed", message=message, completion_time=format_time(now))
                writes += patches.plan_status(item, ended)
        elif item.status.phase not in _SCALER_DONE:
            writes += _scaler_done(item, "ScaleFailed", message, now)
    return writes


def _active(seen: Observed) -> ScalePlan | None:
    begun = [item for item in seen.plans if item.status.phase in _BEGUN]
    return min(
        begun, key=lambda item: (item.metadata.name != seen.job.status.current_plan, _order(seen, item)), default=None
    )


def _start_next(seen: Observed, step: Step, now: float) -> list[Action]:
    """Begin the plan whose turn it is, or turn into a plan what is not one yet."""
    line = _line(seen)
    if any(not _covered(seen, line, role, size) for role, size in translate.edited_replicas(seen.job).items()):
        known = any(item.metadata.name == translate.spec_plan_name(seen.job) for item in seen.plans)
        if not known:
            return [CreatePlan(translate.from_spec(seen.job))]
    actions, line = _supersede(line, now)
    if not line:
        step.status = replace(step.status, current_plan=None)
        return actions
    claimed = [item for item in line if isinstance(item, ScalePlan) and item.metadata.name == step.status.current_plan]
    head = (claimed or line)[0]
    actions += patches.adoption(seen.job, head)
    if actions and any(not isinstance(action, EmitEvent) for action in actions):
        return actions  # these move versions that the next steps are decided on
    if isinstance(head, ScalePlan):
        return _begin(seen, step, head, now)
    try:
        return [CreatePlan(translate.from_scaler(seen, head))]
    except plan.Refused as refusal:
        return [*_scaler_done(head, "ScaleFailed", str(refusal), now)]


def _begin(seen: Observed, step: Step, head: ScalePlan, now: float) -> list[Action]:
    try:
        change = plan.resolve(seen.job, seen.pods, head)
    except plan.Refused as refusal:
        step.status = replace(step.status, current_plan=None)
        return execution.end(head, "Failed", str(refusal), now)
    step.status = replace(step.status, current_plan=head.metadata.name)
    return execution.begin(seen, head, change, now)


def _covered(seen: Observed, line: Sequence[Waiting], role: str, size: int) -> bool:
    """Whether a plan for this edit of the spec waits already."""
    return any(
        isinstance(item, ScalePlan)
        and item.spec.source == "Spec"
        and (wish := item.spec.replica_resource_specs.get(role)) is not None
        and wish.replicas == size
        for item in line
    )


def _line(seen: Observed) -> list[Waiting]:
    """Return what waits, first come first."""
    waiting: list[Waiting] = [item for item in seen.plans if item.status.phase in (None, "Pending")]
    waiting += [scaler for scaler in _scalers(seen) if scaler.status.plan is None and _plan_of(seen, scaler) is None]
    waiting = [item for item in waiting if item.metadata.deletion_timestamp is None]
    return sorted(waiting, key=lambda item: _order(seen, item))


def _order(seen: Observed, item: Waiting) -> tuple[str, str]:
    """By creation; the plan of a ScaleIn or ScaleOut has that one's place."""
    place: Waiting = item
    everyone: list[ScaleIn | ScaleOut] = [*seen.scale_ins, *seen.scale_outs]
    for scaler in everyone:
        if isinstance(item, ScalePlan) and patches.is_owned_by(item, scaler.metadata.uid):
            place = scaler
    return place.metadata.creation_timestamp, place.metadata.uid


def _supersede(line: list[Waiting], now: float) -> tuple[list[Action], list[Waiting]]:
    """Of the Auto plans that wait only the newest counts: the older ones were computed from older measurements."""
    auto = [item for item in line if isinstance(item, ScalePlan) and item.spec.source == "Auto"]
    actions: list[Action] = []
    for old in auto[:-1]:
        actions += execution.end(old, "Superseded", f"by ScalePlan {auto[-1].metadata.name}", now)
    return actions, [item for item in line if item not in auto[:-1]]


def _wait(seen: Observed, message: str, active: ScalePlan) -> list[Action]:
    """Tell those in the line what they wait for, once."""
    actions: list[Action] = []
    owners = {owner.uid for owner in active.metadata.owner_references}
    for item in _line(seen):
        if item.status.phase is not None or item.metadata.uid in owners:
            continue
        if isinstance(item, ScalePlan):
            actions += patches.plan_status(item, replace(item.status, phase="Pending", message=message))
        else:
            actions += patches.scaler_status(item, replace(item.status, phase="Pending", message=message))
    return actions


def _follow(seen: Observed, now: float) -> list[Action]:
    """Let every ScaleIn and ScaleOut tell what its plan tells."""
    actions: list[Action] = []
    for scaler in _scalers(seen):
        followed = _plan_of(seen, scaler)
        if followed is None:
            if scaler.status.plan is not None:
                actions += _scaler_done(scaler, "ScaleFailed", f"ScalePlan {scaler.status.plan} was deleted", now)
        elif followed.status.phase in FINISHED:
            phase: ScalerPhase = "ScaleSucceeded" if followed.status.phase == "Succeeded" else "ScaleFailed"
            pods = [*followed.status.created_pods, *followed.status.removed_pods]
            message = followed.status.message
            actions += patches.scaler_status(
                scaler,
                replace(
                    scaler.status,
                    phase=phase,
                    message=message,
                    plan=followed.metadata.name,
                    pods=pods if phase == "ScaleSucceeded" else [],
                    completion_time=format_time(now),
                ),
            )
        elif scaler.status.phase != "Scaling":
            status = replace(scaler.status, phase="Scaling", message="", plan=followed.metadata.name)
            actions += patches.scaler_status(scaler, status)
    return actions


def _scaler_done(scaler: ScaleIn | ScaleOut, phase: ScalerPhase, message: str, now: float) -> list[PatchStatus]:
    status = replace(scaler.status, phase=phase, message=message, completion_time=format_time(now))
    return patches.scaler_status(scaler, status)


def _scalers(seen: Observed) -> list[ScaleIn | ScaleOut]:
    """Return the ones that are not done."""
    everyone: list[ScaleIn | ScaleOut] = [*seen.scale_ins, *seen.scale_outs]
    return [s for s in everyone if s.status.phase not in _SCALER_DONE and s.metadata.deletion_timestamp is None]


def _plan_of(seen: Observed, scaler: ScaleIn | ScaleOut) -> ScalePlan | None:
    return next((item for item in seen.plans if patches.is_owned_by(item, scaler.metadata.uid)), None)


def _prune(seen: Observed) -> list[Action]:
    """Delete finished plans but for the last ones, those a ScaleIn or ScaleOut still reads, and the present edit's."""
    read = {scaler.metadata.uid for scaler in _scalers(seen)}
    kept = translate.spec_plan_name(seen.job)
    finished = [
        item
        for item in seen.plans
        if item.status.phase in FINISHED
        and item.metadata.deletion_timestamp is None
        and item.metadata.name != kept
        and not any(owner.uid in read for owner in item.metadata.owner_references)
    ]
    finished.sort(key=lambda item: (item.status.completion_time or "", item.metadata.uid))
    return [DeletePlan(item.metadata.name, item.metadata.uid) for item in finished[: max(len(finished) - HISTORY, 0)]]
