"""One ScalePlan from its beginning to its end: draining, executing, done or out of time.

Each step is computed from what is stored in the plan's status, so a new operator carries on where the last one was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.indices import format_indices, parse_indices
from elasticjob_api.quantity import same_quantity
from elasticjob_api.scaleplan import PlanPhase, ScalePlan
from msgspec.structs import replace

from elasticjob_operator.core import patches
from elasticjob_operator.core.actions import Action, EmitEvent, ResizePod, WriteBackReplicas
from elasticjob_operator.core.clock import format_time, parse_time
from elasticjob_operator.core.members import forget_members
from elasticjob_operator.core.observed import Observed, Pod
from elasticjob_operator.core.plan import Change, Indices, Wanted
from elasticjob_operator.core.pods import resized

_NAMES_LISTED = 1000


@dataclass
class Step:
    """What a plan needs now.

    Attributes:
        status: the job's status with what the plan has changed.
        staying: members per role that the plan does not remove.
        overrides: resources per role that the plan is setting.
        actions: what to do, after the job's status is stored.
        requeue_after: seconds until something is due by itself.
    """

    status: ElasticJobStatus
    staying: Indices
    overrides: Mapping[str, Wanted] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)
    requeue_after: float | None = None


def begin(seen: Observed, plan: ScalePlan, change: Change, now: float) -> list[Action]:
    """Fix what the plan will do. From here on it is executed, whoever executes it."""
    removed = [
        p for p in seen.pods if p.role in change.before and p.index in change.before[p.role] - change.targets[p.role]
    ]
    draining = sorted(p.name for p in removed if p.status.phase == "Running" and not p.ended and not p.leaving)
    status = replace(
        plan.status,
        phase="Draining" if draining else "Executing",
        message="",
        before={role: format_indices(indices) for role, indices in change.before.items()},
        targets={role: format_indices(indices) for role, indices in change.targets.items()},
        spec_replicas={role: seen.job.spec.replica_specs[role].replicas for role in change.targets},
        draining_pods=draining[:_NAMES_LISTED],
        removed_pods=sorted(p.name for p in removed)[:_NAMES_LISTED],
        start_time=format_time(now),
        execution_time=None if draining else format_time(now),
    )
    note = f"{plan.metadata.name} ({plan.spec.source}): {_sizes(change)}"
    return [*patches.plan_status(plan, status), EmitEvent("ScalingStarted", note, action="Scale")]


def end(
    plan: ScalePlan,
    phase: PlanPhase,
    message: str,
    now: float,
    *,
    pods: Sequence[Pod] = (),
    resized_pods: Sequence[str] = (),
) -> list[Action]:
    """Give the plan its last phase."""
    targets, before = _parsed(plan.status.targets), _parsed(plan.status.before)
    nobody: frozenset[int] = frozenset()
    created = sorted(p.name for p in pods if p.index in targets.get(p.role, nobody) - before.get(p.role, nobody))
    status = replace(
        plan.status,
        phase=phase,
        message=message,
        created_pods=created[:_NAMES_LISTED],
        resized_pods=list(resized_pods[:_NAMES_LISTED]),
        completion_time=format_time(now),
    )
    note = f"{plan.metadata.name}: {phase}{': ' if message else ''}{message}"
    warning = phase in ("Failed", "PartiallySucceeded")
    return [*patches.plan_status(plan, status), EmitEvent(f"Scaling{phase}", note, action="Scale", warning=warning)]


def advance(seen: Observed, status: ElasticJobStatus, plan: ScalePlan, now: float) -> Step:
    """Take the next step of the plan that has begun."""
    before, targets = _parsed(plan.status.before), _parsed(plan.status.targets)
    held = {role: parse_indices(replica.indices) for role, replica in status.replica_statuses.items()}
    step = Step(status, {role: indices & targets.get(role, indices) for role, indices in held.items()})
    if plan.status.phase == "Draining":
        _drain(seen, plan, step, now)
    elif held != {**held, **targets}:
        step.status = _hold_to(status, plan, before, targets)
        step.staying = {role: targets.get(role, indices) for role, indices in held.items()}
        step.overrides = _resources(plan)
    else:
        step.overrides = _resources(plan)
        _execute(seen, plan, step, before, targets, now)
    return step


def _drain(seen: Observed, plan: ScalePlan, step: Step, now: float) -> None:
    """Wait until every draining pod has ended or the deadline has passed; the master tells the agents."""
    listed = set(plan.status.draining_pods)
    waiting = sorted(pod.name for pod in seen.pods if pod.name in listed and not pod.ended)
    allowed = plan.spec.drain_seconds
    if allowed is None:
        roles = {pod.role for pod in seen.pods if pod.name in listed}
        allowed = max((seen.job.spec.replica_specs[role].drain_seconds for role in roles), default=0)
    left = parse_time(plan.status.start_time or format_time(now)) + allowed - now
    if waiting and left > 0:
        step.requeue_after = left
        return
    status = replace(plan.status, phase="Executing", execution_time=format_time(now), forced_pods=waiting)
    step.actions += patches.plan_status(plan, status)


def _hold_to(status: ElasticJobStatus, plan: ScalePlan, before: Indices, targets: Indices) -> ElasticJobStatus:
    """Return the job's status with the plan's members as the size it is held to."""
    replicas = dict(status.replica_statuses)
    for role, indices in targets.items():
        replica = forget_members(replicas[role], indices)
        wishes = [wish for wish in plan.spec.create_pods if wish.role == role]
        named = {wish.index for wish in wishes if wish.index is not None}
        free = iter(sorted(indices - before.get(role, frozenset()) - named))
        by_index = dict(replica.resources_by_index)
        for wish in wishes:
            index = wish.index if wish.index is not None else next(free, None)
            values = {"cpu": wish.resource.cpu, "memory": wish.resource.memory, "nvidia.com/gpu": wish.resource.gpu}
            wanted = {name: value for name, value in values.items() if value is not None}
            if index is not None and wanted:
                by_index[str(index)] = wanted
        replicas[role] = replace(replica, resources_by_index=by_index)
    return replace(status, replica_statuses=replicas)


def _execute(seen: Observed, plan: ScalePlan, step: Step, before: Indices, targets: Indices, now: float) -> None:
    """Wait until the pods are what the plan says, then store the new size in the spec and end the plan."""
    resizing = _resize(seen, plan, targets)
    step.actions += resizing.actions
    missing = _not_ready(seen, step.status, before, targets)
    staying = sorted(pod.name for pod in seen.pods if pod.role in targets and pod.index not in targets[pod.role])
    rolled_back = plan.status.message
    problems = [
        f"{len(missing)} new members are not ready: {', '.join(missing[:10])}" if missing else "",
        f"{len(staying)} removed pods have not gone: {', '.join(staying[:10])}" if staying else "",
        *resizing.refused,
    ]
    problem = "; ".join(text for text in problems if text)
    if not missing and not staying and not resizing.waiting:
        phase: PlanPhase = "Failed" if rolled_back else "Succeeded"
        if resizing.refused:
            phase = "PartiallySucceeded" if resizing.done or targets != before else "Failed"
        _finish(seen, plan, step, targets, phase, rolled_back or problem, now, keep_resources=not resizing.refused)
        return
    left = parse_time(plan.status.execution_time or format_time(now)) + plan.spec.timeout_seconds - now
    if left > 0:
        step.requeue_after = left
        return
    trouble = f" ({seen.trouble})" if seen.trouble else ""
    message = (
        f"after timeoutSeconds {plan.spec.timeout_seconds}: {problem or 'the resize has not taken effect'}{trouble}"
    )
    if plan.spec.on_timeout == "Rollback" and missing and not rolled_back:
        step.actions += _roll_back(seen, plan, before, targets, message, now)
        return
    new = sum(len(indices - before.get(role, frozenset())) for role, indices in targets.items())
    nothing = new > 0 and len(missing) == new and not plan.status.removed_pods
    _finish(seen, plan, step, targets, "Failed" if nothing else "PartiallySucceeded", message, now, keep_resources=True)


def _finish(
    seen: Observed,
    plan: ScalePlan,
    step: Step,
    targets: Indices,
    phase: PlanPhase,
    message: str,
    now: float,
    *,
    keep_resources: bool,
) -> None:
    """Store sizes and resources first, then end: after a crash in between the same is done again, with no effect."""
    write_back: list[Action] = []
    for role, indices in targets.items():
        asked, expected = seen.job.spec.replica_specs[role].replicas, plan.status.spec_replicas.get(role)
        if expected is not None and asked == expected != len(indices):
            write_back.append(WriteBackReplicas(role, expected, len(indices)))
    if write_back:
        step.actions += write_back
        return
    if keep_resources:
        replicas = dict(step.status.replica_statuses)
        for role, wanted in step.overrides.items():
            replicas[role] = replace(replicas[role], resources={**replicas[role].resources, **wanted})
        step.status = replace(step.status, replica_statuses=replicas)
    resized_pods = (
        sorted(p.name for p in seen.pods if p.role in step.overrides and not p.leaving) if keep_resources else []
    )
    step.actions += end(plan, phase, message, now, pods=seen.pods, resized_pods=resized_pods)


def _roll_back(
    seen: Observed, plan: ScalePlan, before: Indices, targets: Indices, message: str, now: float
) -> list[Action]:
    """Take the new members that are not ready out of the targets; the plan then ends Failed, with this message."""
    kept = {
        role: indices - frozenset(i for i in indices - before.get(role, frozenset()) if not _is_ready(seen, role, i))
        for role, indices in targets.items()
    }
    status = replace(
        plan.status,
        targets={role: format_indices(indices) for role, indices in kept.items()},
        execution_time=format_time(now),
        message=f"rolled back {message}",
    )
    return list(patches.plan_status(plan, status))


@dataclass
class _Resizing:
    actions: list[Action] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    waiting: bool = False
    done: bool = False


def _resize(seen: Observed, plan: ScalePlan, targets: Indices) -> _Resizing:
    """Ask for new resources in place, and believe only what the kubelet reports to be in force."""
    found = _Resizing()
    for role, wanted in _resources(plan).items():
        for pod in seen.pods:
            if (
                pod.role != role
                or pod.index not in targets[role]
                or pod.leaving
                or pod.finished
                or not pod.spec.containers
            ):
                continue
            asked = pod.spec.containers[0].resources.requests
            if any(not same_quantity(asked.get(name), value) for name, value in wanted.items()):
                found.actions.append(ResizePod(pod.name, pod.metadata.uid, resized(seen.job, pod, wanted)))
                found.waiting = True
                continue
            refusal = _resize_refusal(pod)
            if refusal:
                found.refused.append(f"{pod.name}: {refusal}")
            elif pod.status.phase == "Running" and not _in_force(pod, wanted):
                found.waiting = True
            else:
                found.done = True
    return found


def _resize_refusal(pod: Pod) -> str:
    pending = pod.condition("PodResizePending")
    if pending is not None and pending.reason == "Infeasible":
        return f"resize is {pending.reason}: {pending.message}"
    progress = pod.condition("PodResizeInProgress")
    return f"resize failed: {progress.message}" if progress is not None and progress.reason == "Error" else ""


def _in_force(pod: Pod, wanted: Wanted) -> bool:
    first = pod.spec.containers[0].name
    for status in pod.status.container_statuses:
        if status.name == first and status.resources is not None:
            return all(same_quantity(status.resources.requests.get(name), value) for name, value in wanted.items())
    return False


def _resources(plan: ScalePlan) -> dict[str, Wanted]:
    resources: dict[str, Wanted] = {}
    for role, wish in plan.spec.replica_resource_specs.items():
        values = {"cpu": wish.resource.cpu, "memory": wish.resource.memory}
        if wanted := {name: value for name, value in values.items() if value is not None}:
            resources[role] = wanted
    return resources


def _not_ready(seen: Observed, status: ElasticJobStatus, before: Indices, targets: Indices) -> list[str]:
    """Return the new members that are neither ready nor done with their work."""
    return [
        f"{role} {index}"
        for role, indices in targets.items()
        for index in sorted(
            indices - before.get(role, frozenset()) - parse_indices(status.replica_statuses[role].succeeded_indices)
        )
        if not _is_ready(seen, role, index)
    ]


def _is_ready(seen: Observed, role: str, index: int) -> bool:
    return any(pod.role == role and pod.index == index and pod.ready for pod in seen.pods)


def _parsed(indices: Mapping[str, str]) -> Indices:
    return {role: parse_indices(text) for role, text in indices.items()}


def _sizes(change: Change) -> str:
    sizes = [
        f"{role} {len(change.before[role])} to {len(indices)}"
        for role, indices in change.targets.items()
        if indices != change.before[role]
    ]
    return ", ".join(sizes + [f"{role} resources" for role in change.resources]) or "no change"
