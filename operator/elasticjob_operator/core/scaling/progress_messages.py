"""Writes messages about the members that a plan has not reached, with the reasons of their pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elasticjob_api.indices import parse_indices
from elasticjob_api.pod_identity import MemberKey

from elasticjob_operator.core.members.failure_policy import describe, why_pending
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import Indices
from elasticjob_operator.core.model.pod import Pod

_MAX_MEMBERS_NAMED = 10
_MAX_REASONS = 3


def not_ready(observed: Observed, members: Indices) -> list[MemberKey]:
    """Return the members whose pod is not ready and that have not succeeded."""
    statuses = observed.job.status.replica_statuses
    return [
        (role, index)
        for role, indices in members.items()
        for index in indices
        - parse_indices(statuses[role].succeeded_indices)
        - observed.pods_of(role).ready
    ]


def not_reached_message(
    not_reached: Sequence[str], total: int, what: str, reasons: Iterable[str] = ()
) -> str:
    """Return such as `2 of 4 members are not ready.

    Worker 1, worker 2 (Unschedulable: no node)`.
    """
    if not not_reached:
        return ""
    named = ", ".join(not_reached[:_MAX_MEMBERS_NAMED])
    if len(not_reached) > _MAX_MEMBERS_NAMED:
        named += ", …"
    text = f"{len(not_reached)} of {total} {what}: {named}"
    distinct_reasons = list(dict.fromkeys(filter(None, reasons)))[:_MAX_REASONS]
    if distinct_reasons:
        text += f" ({'; '.join(distinct_reasons)})"
    return text


def not_ready_message(observed: Observed, not_reached: Sequence[MemberKey], total: int) -> str:
    """Return which of the new members are not ready, and why."""
    names = [f"{role} {index}" for role, index in not_reached]
    return not_reached_message(
        names,
        total,
        "new members are not ready",
        (why_not_ready(observed, *member) for member in not_reached),
    )


def why_not_ready(observed: Observed, role: str, index: int) -> str:
    """Return why a member is not ready, by its pod's status or the refusal of its pod."""
    pods = observed.pods_of(role).at(index)
    if not pods:
        return observed.last_refusal or "it has no pod"
    pod = max(pods, key=lambda pod: pod.incarnation)
    if pod.finished:
        return describe(pod)
    if pod.terminating:
        return f"{pod.name} is being deleted"
    return why_pending(pod) or _why_unready(pod)


def _why_unready(pod: Pod) -> str:
    condition = next((c for c in pod.status.conditions if c.type == "Ready" and c.message), None)
    if condition is not None:
        return condition.message
    return f"its pod is {pod.status.phase}, but not ready"
