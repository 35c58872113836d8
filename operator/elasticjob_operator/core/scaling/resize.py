"""New CPU and memory for running pods, in place where the cluster can; and who must be replaced because it cannot.

Only what the kubelet reports to be in force is believed. It cannot be done in place where the API server refuses it,
where the kubelet calls it infeasible, defers it or fails, and where the kubelet says nothing at all, which one that is
too old does. GPUs never change in place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from elasticjob_api.quantity import same_quantity
from elasticjob_api.scaleplan import ScalePlan
from elasticjob_api.times import parse_time
from msgspec import to_builtins

from elasticjob_operator.core.manifests.pods import with_resources
from elasticjob_operator.core.model.actions import ResizePod
from elasticjob_operator.core.model.observed import Observed, Pod
from elasticjob_operator.core.model.plan import GPU, Wanted, as_wanted, current_indices, wanted_resources
from elasticjob_operator.core.scaling.drain import NAMES_LISTED
from elasticjob_operator.core.scaling.plan_membership import Members

SILENCE_SECONDS = 30
"""How long a kubelet may say nothing about a resize."""


@dataclass
class Found:
    """How far the members' resources are what a plan wants.

    Attributes:
        asks: pods to be asked to resize.
        waiting: pods whose kubelet may still do it.
        impossible: pods that must be replaced instead, and why.
        done: pods that have been resized in place.
    """

    asks: list[Pod] = field(default_factory=list)
    waiting: list[Pod] = field(default_factory=list)
    impossible: list[tuple[Pod, str]] = field(default_factory=list)
    done: list[Pod] = field(default_factory=list)


def wishes(plan: ScalePlan) -> dict[str, Wanted]:
    """Return the resources per role that a plan wants for every member."""
    found = {role: as_wanted(wish.resource) for role, wish in plan.spec.replica_resource_specs.items()}
    return {role: wanted for role, wanted in found.items() if wanted}


def look(observed: Observed, plan: ScalePlan, members: Members, now: float) -> Found:
    """Return how far the pods of the members that stay have the resources wanted."""
    found = Found()
    for role, wanted in wishes(plan).items():
        moves = [move for move in plan.status.migrations if move.role == role and move.phase != "Undone"]
        # Who leaves does not matter any more, and a replacement was made with these resources.
        moved = {index for move in moves for index in (move.index, move.replacement)}
        for pod in observed.members(role):
            if pod.index in members.staying[role] - moved and _resizable(pod):
                _judge(found, observed, plan, pod, wanted, now)
    return found


def ask(pod: Pod, wanted: Mapping[str, int | str]) -> ResizePod:
    """Return the request to change resources of the container that trains and to keep its others."""
    resources = to_builtins(pod.spec.containers[0].resources)
    return ResizePod(pod.name, pod.metadata.uid, with_resources(resources, wanted))


def taken_back(observed: Observed, plan: ScalePlan, left_out: Collection[Pod]) -> list[ResizePod]:
    """Return the requests that give pods back what they had, where the API server has taken ours but no kubelet did."""
    asks = []
    for pod in left_out:
        had = _remembered(observed, pod)
        old = {name: had[name] for name in wishes(plan)[pod.role] if name in had}
        request = ask(pod, old)
        if not _asked(pod, old) and not _refused(observed, request):
            asks.append(request)
    return asks


def changed(
    observed: Observed, plan: ScalePlan, members: Members, left_out: Collection[Pod]
) -> dict[str, dict[str, Wanted]]:
    """Return the wanted resources by role and index for the members that have them, when not all do."""
    names = {pod.name for pod in left_out}
    return {
        role: {
            str(pod.index): wanted
            for pod in observed.members(role)
            if pod.index in members.staying[role] and pod.name not in names and _resizable(pod) and _asked(pod, wanted)
        }
        for role, wanted in wishes(plan).items()
    }


def found_in_force(observed: Observed) -> dict[str, dict[str, Wanted]]:
    """Return by role and index what members have been given in place that the job's status does not know of.

    A plan that was deleted has left it so; they keep it, as every pod that follows them does.
    """
    found: dict[str, dict[str, Wanted]] = {}
    for role, indices in current_indices(observed.job.status).items():
        for pod in observed.members(role):
            if pod.index in indices and _resizable(pod):
                asked, had = pod.spec.containers[0].resources.requests, _remembered(observed, pod)
                news = {n: value for n, value in asked.items() if n in had and not same_quantity(value, had[n])}
                if news and _in_force(pod, news):
                    found.setdefault(role, {})[str(pod.index)] = news
    return found


def _judge(found: Found, observed: Observed, plan: ScalePlan, pod: Pod, wanted: Wanted, now: float) -> None:
    if not _asked(pod, wanted):
        if why := _never(observed, pod, wanted):
            found.impossible.append((pod, why))
        else:
            found.asks.append(pod)
    elif _was_resized(plan, pod):
        if pod.status.phase != "Running" or _in_force(pod, wanted):
            found.done.append(pod)
        elif why := _refusal(pod) or _late(plan, pod, now):
            found.impossible.append((pod, why))
        else:
            found.waiting.append(pod)


def _never(observed: Observed, pod: Pod, wanted: Wanted) -> str:
    """Return why it need not even be asked; empty when it may be."""
    if GPU in wanted:
        return "GPUs do not change in place"
    if observed.job.spec.autoscaling.resize == "Replace":
        return "spec.autoscaling.resize is Replace"
    return _refused(observed, ask(pod, wanted))


def _refused(observed: Observed, request: ResizePod) -> str:
    """Return why the API server has refused this very request; for other resources it is asked again."""
    refused, why = observed.unresizable.get(request.uid, (None, ""))
    return why if refused == request else ""


def _refusal(pod: Pod) -> str:
    """Return the kubelet's own words."""
    pending = pod.condition("PodResizePending")
    if pending is not None and pending.reason in ("Infeasible", "Deferred"):
        return f"resize is {pending.reason}: {pending.message}"
    progress = pod.condition("PodResizeInProgress")
    return f"resize failed: {progress.message}" if progress is not None and progress.reason == "Error" else ""


def _late(plan: ScalePlan, pod: Pod, now: float) -> str:
    """Return that the kubelet has had its time; one that tells of a resize under way has the plan's."""
    seconds = plan.spec.timeout_seconds
    if pod.condition("PodResizeInProgress") is None:
        seconds = min(seconds, SILENCE_SECONDS)
    if plan.status.resize_time is None or now - parse_time(plan.status.resize_time) < seconds:
        return ""
    return f"the kubelet has not resized it within {seconds} s"


def _was_resized(plan: ScalePlan, pod: Pod) -> bool:
    """Whether it was asked to resize, and not created with these resources."""
    return pod.name in plan.status.resized_pods or len(plan.status.resized_pods) >= NAMES_LISTED


def _resizable(pod: Pod) -> bool:
    return bool(pod.spec.containers) and not pod.leaving and not pod.finished


def _asked(pod: Pod, wanted: Wanted) -> bool:
    requests = pod.spec.containers[0].resources.requests
    return all(same_quantity(requests.get(name), value) for name, value in wanted.items())


def _in_force(pod: Pod, wanted: Wanted) -> bool:
    asked = pod.spec.containers[0]
    for status in pod.status.container_statuses:
        if status.name == asked.name and status.resources is not None:
            limits = {name: value for name, value in wanted.items() if name in asked.resources.limits}
            return all(
                same_quantity(has.get(name), value)
                for has, want in ((status.resources.requests, wanted), (status.resources.limits, limits))
                for name, value in want.items()
            )
    return False


def _remembered(observed: Observed, pod: Pod) -> Wanted:
    """Return what the member requests by the job's status and its template: what its next pod would be made with."""
    container = observed.job.spec.replica_specs[pod.role].template["spec"]["containers"][0]
    wanted = wanted_resources(observed.job.status, pod.role, pod.index)
    resources = with_resources(container.get("resources") or {}, wanted)
    return {**(resources.get("limits") or {}), **resources["requests"]}
