"""Resizes CPU and memory of running pods in place, and finds the members that must be replaced.

A resize is done when the kubelet reports the new resources. It is impossible if the API server
refuses it, if the kubelet reports it as infeasible or deferred, or if the kubelet reports nothing,
as an old one does, or errors until its time is over. GPUs and other extended resources never change
in place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob_api.quantity import parse_quantity, same_quantity
from elasticjob_api.resources import is_extended
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.times import parse_time
from msgspec import to_builtins

from elasticjob_operator.core.manifests.pods import with_resources
from elasticjob_operator.core.model.actions import ResizePod
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import (
    Quantities,
    current_indices,
    member_resources,
    with_own_memory,
)
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.scaling.drain import MAX_NAMES_LISTED
from elasticjob_operator.core.scaling.plan_membership import PlanMembership

KUBELET_SILENCE_SECONDS = 30
"""Seconds after which a kubelet that reports nothing about a resize is too old for it.

So long it may also report errors: it tries again, for example until it knows how much memory a
container takes whose limit is to be lowered.
"""
_QUOTA_SECONDS = 30
"""Seconds for which a resize that a quota refuses is requested again.

A quota credits what another pod gives when its kubelet has reported it, or some seconds later.
"""
_QUOTA_RETRY_SECONDS = 2


@dataclass
class ResizeProgress:
    """The progress of the resizes of a plan.

    Attributes:
        to_request: pods whose resize has not been requested yet, or is requested again.
        pending: pods whose kubelet may still do it, or whose request a quota has refused.
        problems: what those quotas and kubelets say.
        impossible: pods that must be replaced instead, and why.
        done: pods that have been resized in place.
    """

    to_request: list[Pod] = field(default_factory=list)
    pending: list[Pod] = field(default_factory=list)
    problems: set[str] = field(default_factory=set)
    impossible: list[tuple[Pod, str]] = field(default_factory=list)
    done: list[Pod] = field(default_factory=list)


def resources_by_role(plan: ScalePlan) -> dict[str, Quantities]:
    """Return the resources per role that a plan sets for every member."""
    by_role = {role: spec.resource for role, spec in plan.spec.replica_resource_specs.items()}
    return {role: quantities for role, quantities in by_role.items() if quantities}


def resources_of(status: ElasticJobStatus, plan: ScalePlan, role: str, index: int) -> Quantities:
    """Return the resources that a plan sets for one member.

    An Auto plan keeps memory that the member got after it ran out of memory.
    """
    by_plan = resources_by_role(plan).get(role, {})
    return with_own_memory(status, role, index, by_plan) if plan.spec.source == "Auto" else by_plan


def progress_of(
    observed: Observed, plan: ScalePlan, members: PlanMembership, now: float
) -> ResizeProgress:
    """Return the progress of the resizes of all staying members."""
    progress = ResizeProgress()
    for role in resources_by_role(plan):
        moves = [
            move for move in plan.status.migrations if move.role == role and move.phase != "Undone"
        ]
        # A replaced member leaves, and its replacement was created with these resources.
        staying = members.staying[role]
        for move in moves:
            for index in (move.index, move.replacement):
                staying = staying.with_index(index, present=False)
        for pod in observed.pods_of(role).of_members(staying):
            if _resizable(pod):
                wanted = resources_of(observed.job.status, plan, role, pod.index)
                _classify(progress, observed, plan, pod, wanted, now)
    return progress


def resize_request(job: ElasticJob, pod: Pod, wanted: Mapping[str, int | str]) -> ResizePod:
    """Return the request to change these resources of the training container.

    A limit above the request that only the namespace has set is not lowered.
    """
    asked = pod.container.resources
    changed = with_resources(to_builtins(asked), wanted)
    template = (
        job.spec.replica_specs[pod.role].template["spec"]["containers"][0].get("resources") or {}
    )
    for name in wanted.keys() & asked.limits.keys() - (template.get("limits") or {}).keys():
        limit = parse_quantity(asked.limits[name])
        request = parse_quantity(asked.requests.get(name, 0))
        if limit > request and limit > parse_quantity(wanted[name]):
            changed["limits"][name] = asked.limits[name]
    return ResizePod(pod.name, pod.metadata.uid, changed)


def undo_requests(
    observed: Observed, plan: ScalePlan, left_out: Collection[Pod]
) -> list[ResizePod]:
    """Return the requests that restore the old resources of pods that were not resized."""
    requests = []
    for pod in left_out:
        had = _recorded_resources(observed, pod)
        old = {name: had[name] for name in resources_by_role(plan)[pod.role] if name in had}
        request = resize_request(observed.job, pod, old)
        if not _is_requested(pod, old) and not _api_server_refusal(observed, request):
            requests.append(request)
    return requests


def resources_reached(
    observed: Observed, plan: ScalePlan, members: PlanMembership, left_out: Collection[Pod]
) -> dict[str, dict[str, Quantities]]:
    """Return the plan's resources of the members that have them, by role and index."""
    names = {pod.name for pod in left_out}
    status = observed.job.status
    reached: dict[str, dict[str, Quantities]] = {}
    for role in resources_by_role(plan):
        for pod in observed.pods_of(role):
            wanted = resources_of(status, plan, role, pod.index)
            present = (
                pod.index in members.staying[role] and pod.name not in names and _resizable(pod)
            )
            if present and _is_requested(pod, wanted):
                reached.setdefault(role, {})[str(pod.index)] = wanted
    return reached


def unrecorded_resources(observed: Observed) -> dict[str, dict[str, Quantities]]:
    """Return the resources that members got in place from a deleted plan, by role and index.

    When the job's status has them, the members' next pods get them as well.
    """
    unrecorded: dict[str, dict[str, Quantities]] = {}
    for role, indices in current_indices(observed.job.status).items():
        for pod in observed.pods_of(role):
            if pod.index in indices and _resizable(pod):
                requests = pod.container.resources.requests
                recorded = _recorded_resources(observed, pod)
                changed = {
                    n: value
                    for n, value in requests.items()
                    if n in recorded and not same_quantity(value, recorded[n])
                }
                if changed and _is_in_force(pod, changed):
                    unrecorded.setdefault(role, {})[str(pod.index)] = changed
    return unrecorded


def _classify(
    progress: ResizeProgress,
    observed: Observed,
    plan: ScalePlan,
    pod: Pod,
    wanted: Quantities,
    now: float,
) -> None:
    if not _is_requested(pod, wanted):
        why = _why_impossible(observed, pod, wanted)
        if why and _may_be_credited(observed, plan, pod, now):
            progress.problems.add(why)
            refused, _ = observed.refused_resizes[pod.metadata.uid]
            due = now - refused.at >= _QUOTA_RETRY_SECONDS
            (progress.to_request if due else progress.pending).append(pod)
        elif why:
            progress.impossible.append((pod, why))
        else:
            progress.to_request.append(pod)
    elif _was_requested(plan, pod):
        if pod.status.phase != "Running" or _is_in_force(pod, wanted):
            progress.done.append(pod)
        elif why := _kubelet_refusal(pod) or _overdue(plan, pod, now):
            progress.impossible.append((pod, why))
        else:
            progress.pending.append(pod)
            progress.problems.update(_kubelet_error(pod))


def _why_impossible(observed: Observed, pod: Pod, wanted: Quantities) -> str:
    """Return why a resize in place is not even requested; empty when it may be."""
    if extended := sorted(filter(is_extended, wanted)):
        return f"{', '.join(extended)} cannot change in place"
    if observed.job.spec.autoscaling.resize == "Replace":
        return "spec.autoscaling.resize is Replace"
    return _api_server_refusal(observed, resize_request(observed.job, pod, wanted))


def _api_server_refusal(observed: Observed, request: ResizePod) -> str:
    """Return why the API server has refused exactly this request; empty if it has not."""
    refused, why = observed.refused_resizes.get(request.uid, (None, ""))
    return why if refused == request else ""


def _may_be_credited(observed: Observed, plan: ScalePlan, pod: Pod, now: float) -> bool:
    """Return whether a quota has refused the resize, and may yet credit what others give."""
    _, why = observed.refused_resizes.get(pod.metadata.uid, (None, ""))
    if "exceeded quota" not in why or plan.status.resize_time is None:
        return False
    return now - parse_time(plan.status.resize_time) < _QUOTA_SECONDS


def _kubelet_refusal(pod: Pod) -> str:
    """Return why the kubelet cannot do the resize, by the pod's conditions; empty if it may."""
    pending = pod.condition("PodResizePending")
    if pending is not None and pending.reason in ("Infeasible", "Deferred"):
        return f"resize is {pending.reason}: {pending.message}"
    return ""


def _kubelet_error(pod: Pod) -> list[str]:
    """Return what the kubelet says of its last attempt; empty if that has not failed."""
    progress = pod.condition("PodResizeInProgress")
    if progress is None or progress.reason != "Error":
        return []
    return [f"resize failed: {progress.message}"]


def _overdue(plan: ScalePlan, pod: Pod, now: float) -> str:
    """Return a message if the kubelet's time is over.

    A resize in progress has the plan's timeout, unless it fails.
    """
    seconds = plan.spec.timeout_seconds
    errors = _kubelet_error(pod)
    if errors or pod.condition("PodResizeInProgress") is None:
        seconds = min(seconds, KUBELET_SILENCE_SECONDS)
    if plan.status.resize_time is None or now - parse_time(plan.status.resize_time) < seconds:
        return ""
    return errors[0] if errors else f"the kubelet has not resized it within {seconds} s"


def _was_requested(plan: ScalePlan, pod: Pod) -> bool:
    """Return whether a resize of the pod was requested.

    Else it was created with these resources.
    """
    return pod.name in plan.status.resized_pods or len(plan.status.resized_pods) >= MAX_NAMES_LISTED


def _resizable(pod: Pod) -> bool:
    return bool(pod.spec.containers) and not pod.terminating and not pod.finished


def _is_requested(pod: Pod, wanted: Quantities) -> bool:
    requests = pod.container.resources.requests
    return all(same_quantity(requests.get(name), value) for name, value in wanted.items())


def _is_in_force(pod: Pod, wanted: Quantities) -> bool:
    asked = pod.container
    for status in pod.status.container_statuses:
        if status.name == asked.name and status.resources is not None:
            limits = {
                name: asked.resources.limits[name]
                for name in wanted
                if name in asked.resources.limits
            }
            return all(
                same_quantity(has.get(name), value)
                for has, want in (
                    (status.resources.requests, wanted),
                    (status.resources.limits, limits),
                )
                for name, value in want.items()
            )
    return False


def _recorded_resources(observed: Observed, pod: Pod) -> Quantities:
    """Return the resources that the member's next pod would request."""
    container = observed.job.spec.replica_specs[pod.role].template["spec"]["containers"][0]
    wanted = member_resources(observed.job.status, pod.role, pod.index)
    resources = with_resources(container.get("resources") or {}, wanted)
    return {**(resources.get("limits") or {}), **resources["requests"]}
