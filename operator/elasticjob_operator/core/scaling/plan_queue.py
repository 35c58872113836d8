"""The queue of one job: which ScalePlan is next, and what becomes of ScaleIns, ScaleOuts and edits of the spec.

Plans and not yet translated ScaleIns and ScaleOuts wait in one line, by creation. A ScaleIn or ScaleOut is translated
when it is its turn, so that its count is relative to the size that is then there.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.scaleplan import FINISHED, PlanPhase, ScalePlan
from elasticjob_api.scalers import ScaleIn, ScaleOut
from elasticjob_api.times import format_time
from msgspec.structs import replace

from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import Action, CreatePlan, DeletePlan, EmitEvent, PatchStatus, sooner
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import PlanRefused, current_indices
from elasticjob_operator.core.scaling import (
    completion_status,
    disruption,
    execution,
    plan_manifests,
    request_status,
    resize,
)
from elasticjob_operator.core.scaling.execution import Step
from elasticjob_operator.core.scaling.plan_membership import without_plan
from elasticjob_operator.core.scaling.resolve import resolve

_BEGUN = ("Draining", "Executing")
Waiting = ScalePlan | ScaleIn | ScaleOut


def scale(observed: Observed, status: ElasticJobStatus, now: float) -> Step:
    """Take the next step of whatever changes the size of the job."""
    active = _active(observed)
    orphans = request_status.orphans(observed)
    if active is not None and not any(action.uid == active.metadata.uid for action in orphans):
        step = execution.advance(observed, replace(status, current_plan=active.metadata.name), active, now)
        step.actions += _wait(observed, f"waits for ScalePlan {active.metadata.name}", active)
    else:
        indices = current_indices(status)
        step = Step(status, indices, indices)
        if not orphans:
            step.status = without_plan(status)
            step.actions += _start_next(observed, step, now)
    old, due = request_status.expired(request_status.everyone(observed), now)
    step.requeue_after = sooner(step.requeue_after, due)
    # A ScaleIn or ScaleOut says which plan it has become before that begins: whoever deletes the plan then cancels it.
    step.actions[:0] = request_status.follow(observed, now)
    step.actions += [*orphans, *disruption.notices(observed), *old, *_prune(observed)]
    return step


def end_all(observed: Observed, reason: str, now: float) -> list[Action]:
    """End everything that still waits or runs, because the job cannot be scaled any more: `reason` says why."""
    actions: list[Action] = []
    for item in observed.plans:
        if item.metadata.deletion_timestamp is None and item.status.phase not in FINISHED:
            phase: PlanPhase = "Cancelled" if item.status.start_time else "Failed"
            actions += execution.end(item, phase, reason, now, pods=observed.pods)
    for scaler in request_status.open_ones(observed):
        if request_status.plan_of(observed, scaler) is None:
            actions += request_status.done(scaler, "ScaleFailed", reason, now)
    old, _ = request_status.expired(request_status.everyone(observed), now)
    return [*actions, *request_status.follow(observed, now), *old, *_prune(observed)]


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
        elif item.status.phase not in request_status.DONE:
            writes += request_status.done(item, "ScaleFailed", message, now)
    return writes


def _active(observed: Observed) -> ScalePlan | None:
    begun = [item for item in observed.plans if item.status.phase in _BEGUN]
    return min(
        begun,
        key=lambda item: (item.metadata.name != observed.job.status.current_plan, _order(observed, item)),
        default=None,
    )


def _start_next(observed: Observed, step: Step, now: float) -> list[Action]:
    """Begin the plan whose turn it is, or turn into a plan what is not one yet."""
    line, known = _line(observed), {item.metadata.name for item in observed.plans}
    edits = plan_manifests.edited_replicas(observed.job, step.status)
    if step.status.current_plan is not None and step.status.current_plan not in known:
        return _after_deletion(observed, step, edits)
    new = any(not _covered(line, role, size) for role, size in edits.items())
    if new and plan_manifests.spec_plan_name(observed.job) not in known:
        return [CreatePlan(plan_manifests.from_spec(observed.job, edits))]
    actions, line = _supersede(line, now)
    if not line:
        step.status = replace(step.status, current_plan=None)
        return actions
    claimed = [item for item in line if isinstance(item, ScalePlan) and item.metadata.name == step.status.current_plan]
    head = (claimed or line)[0]
    actions += patches.adoption(observed.job, head)
    if actions and any(not isinstance(action, EmitEvent) for action in actions):
        return actions  # these move versions that the next steps are decided on
    if isinstance(head, ScalePlan) and request_status.is_news(observed, head):
        return actions  # it is told first, so that a request whose plan is deleted does not become another one
    if isinstance(head, ScalePlan):
        return _begin(observed, step, head, now)
    try:
        return [CreatePlan(plan_manifests.from_scaler(observed, head))]
    except PlanRefused as refusal:
        return [*request_status.done(head, "ScaleFailed", str(refusal), now)]


def _begin(observed: Observed, step: Step, head: ScalePlan, now: float) -> list[Action]:
    if head.spec.source == "Disruption":
        head = disruption.at_its_turn(observed, head)
        if disruption.is_over(head):
            step.status = replace(step.status, current_plan=None)
            return execution.end(head, "Cancelled", "its pods are gone or leaving already; they are replaced", now)
    try:
        change = resolve(observed.job, observed.pods, head)
    except PlanRefused as refusal:
        step.status = replace(step.status, current_plan=None)
        return execution.end(head, "Failed", str(refusal), now)
    step.status = replace(step.status, current_plan=head.metadata.name)
    return execution.begin(observed, head, change, now)


def _after_deletion(observed: Observed, step: Step, edits: dict[str, int]) -> list[Action]:
    """The plan that was being executed has been deleted: bring the job back to the size its spec asks for.

    The name of the plan that does so is stored first, so that it is made once, and before all others.
    """
    deleted = step.status.current_plan or ""
    step.status = completion_status.with_resources_by_index(step.status, resize.found_in_force(observed))
    if not edits:
        step.status = replace(step.status, current_plan=None)
    elif not plan_manifests.is_return_plan(observed.job, deleted):
        step.status = replace(step.status, current_plan=plan_manifests.return_plan_name(observed.job))
    note = f"{deleted} was deleted while it was being executed"
    if edits:
        sizes = ", ".join(f"{role} {size}" for role, size in edits.items())
        note += f"; the job goes back to {sizes}, the replicas of its spec"
    actions: list[Action] = []
    if deleted != step.status.current_plan:
        actions.append(EmitEvent("ScalingCancelled", note, action="Scale", warning=True))
    if edits:
        name = step.status.current_plan or ""
        actions.append(CreatePlan(plan_manifests.back_to_spec(observed.job, edits, name, note)))
    return actions


def _covered(line: Sequence[Waiting], role: str, size: int) -> bool:
    """Whether a plan for this edit of the spec waits already."""
    return any(
        isinstance(item, ScalePlan)
        and item.spec.source == "Spec"
        and (wish := item.spec.replica_resource_specs.get(role)) is not None
        and wish.replicas == size
        for item in line
    )


def _line(observed: Observed) -> list[Waiting]:
    """Return what waits, first come first."""
    waiting: list[Waiting] = [item for item in observed.plans if item.status.phase in (None, "Pending")]
    waiting += [
        scaler
        for scaler in request_status.open_ones(observed)
        if scaler.status.plan is None and request_status.plan_of(observed, scaler) is None
    ]
    waiting = [item for item in waiting if item.metadata.deletion_timestamp is None]
    return sorted(waiting, key=lambda item: _order(observed, item))


def _order(observed: Observed, item: Waiting) -> tuple[str, str]:
    """By creation; the plan of a ScaleIn or ScaleOut has that one's place."""
    place: Waiting = item
    if isinstance(item, ScalePlan):
        place = next((s for s in request_status.everyone(observed) if patches.is_owned_by(item, s.metadata.uid)), item)
    return place.metadata.creation_timestamp, place.metadata.uid


def _supersede(line: list[Waiting], now: float) -> tuple[list[Action], list[Waiting]]:
    """Of the Auto plans that wait only the newest counts: the older ones were computed from older measurements."""
    auto = [item for item in line if isinstance(item, ScalePlan) and item.spec.source == "Auto"]
    actions: list[Action] = []
    for old in auto[:-1]:
        actions += execution.end(old, "Superseded", f"by ScalePlan {auto[-1].metadata.name}", now)
    return actions, [item for item in line if item not in auto[:-1]]


def _wait(observed: Observed, message: str, active: ScalePlan) -> list[Action]:
    """Tell those in the line what they wait for, once."""
    actions: list[Action] = []
    owners = {owner.uid for owner in active.metadata.owner_references}
    for item in _line(observed):
        if item.status.phase is not None or item.metadata.uid in owners:
            continue
        if isinstance(item, ScalePlan):
            actions += patches.plan_status(item, replace(item.status, phase="Pending", message=message))
        else:
            actions += patches.scaler_status(item, replace(item.status, phase="Pending", message=message))
    return actions


def _prune(observed: Observed) -> list[Action]:
    """Delete finished plans but for the last ones, those that are still read, and the present edit's.

    Of the plan that is current by the job's status, the end has yet to be seen: it must not look as if it was deleted.
    """
    read = {scaler.metadata.uid for scaler in request_status.open_ones(observed)}
    job = observed.job
    kept = {plan_manifests.spec_plan_name(job), job.status.current_plan, *disruption.still_needed(observed)}
    finished = [
        item
        for item in observed.plans
        if item.status.phase in FINISHED
        and item.metadata.deletion_timestamp is None
        and item.metadata.name not in kept
        and not any(owner.uid in read for owner in item.metadata.owner_references)
    ]
    limit = job.spec.run_policy.plan_history_limit
    finished.sort(key=lambda item: (item.status.completion_time or "", item.metadata.uid))
    return [DeletePlan(item.metadata.name, item.metadata.uid) for item in finished[: max(len(finished) - limit, 0)]]
