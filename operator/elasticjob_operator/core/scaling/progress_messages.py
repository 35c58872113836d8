"""What a plan has not reached, in words for people: how many of how many, who, and what their own pods say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elasticjob_api.indices import parse_indices

from elasticjob_operator.core.members.failure_policy import describe, why_pending
from elasticjob_operator.core.model.observed import Observed, Pod
from elasticjob_operator.core.model.plan import Indices

_NAMED = 10
_REASONS = 3

Member = tuple[str, int]


def not_ready(observed: Observed, members: Indices) -> list[Member]:
    """Return those of the members that are neither ready nor done with their work."""
    ready = {(pod.role, pod.index) for pod in observed.pods if pod.ready}
    return [
        (role, index)
        for role, indices in members.items()
        for index in sorted(indices - parse_indices(observed.job.status.replica_statuses[role].succeeded_indices))
        if (role, index) not in ready
    ]


def sentence(few: Sequence[str], total: int, what: str, reasons: Iterable[str] = ()) -> str:
    """Return such as `2 of 4 new members are not ready: worker 1, worker 2 (Unschedulable: no node)`."""
    if not few:
        return ""
    named = ", ".join(few[:_NAMED]) + (", …" if len(few) > _NAMED else "")
    why = "; ".join(list(dict.fromkeys(filter(None, reasons)))[:_REASONS])
    return f"{len(few)} of {total} {what}: {named}{f' ({why})' if why else ''}"


def missing(observed: Observed, few: Sequence[Member], total: int) -> str:
    """Return which of the new members are not ready, and why."""
    names = [f"{role} {index}" for role, index in few]
    return sentence(names, total, "new members are not ready", (why(observed, *member) for member in few))


def why(observed: Observed, role: str, index: int) -> str:
    """Return why a member is not ready, in its pod's own words or in those of whoever refused the pod."""
    pods = [pod for pod in observed.members(role) if pod.index == index]
    if not pods:
        return observed.trouble or "it has no pod"
    pod = max(pods, key=lambda pod: pod.incarnation)
    if pod.finished:
        return describe(pod)
    if pod.leaving:
        return f"{pod.name} is being deleted"
    return why_pending(pod) or _unready(pod)


def _unready(pod: Pod) -> str:
    condition = next((c for c in pod.status.conditions if c.type == "Ready" and c.message), None)
    return condition.message if condition is not None else f"its pod is {pod.status.phase}, but not ready"
