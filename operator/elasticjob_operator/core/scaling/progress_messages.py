"""Writes messages about a running plan: what it waits for, and what it has not reached, and why.

Every new text of `waitingFor` is a write of the plan, and the pods of a large job change one by
one. So it names a few members, but gives only a rounded number of many, which changes rarely.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elasticjob_api.indices import parse_indices
from elasticjob_api.pod_identity import MemberKey
from elasticjob_api.scaleplan import MAX_WAITING_FOR_CHARACTERS, ScalePlan, ScalePlanStatus

from elasticjob_operator.core.members.pod_reports import describe, why_pending
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import Indices
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.scaling import drain

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
    """Return a list with reasons: `1 of 4 new members are not ready: worker 3 (Unschedulable)`."""
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


def awaited_drains(observed: Observed, plan: ScalePlan, pods: Sequence[str]) -> str:
    """Return the text for pods that drain; empty without pods."""
    roles = {pod.role for pod in observed.pods.named(pods)}
    seconds = drain.drain_seconds(observed, plan, roles)
    return _text("pods", f"to end their training, within {seconds} s", pods)


def awaited_members(observed: Observed, not_ready: Sequence[MemberKey]) -> str:
    """Return the text for new members that are not ready; empty if all are ready."""
    named = [f"{role} {index}" for role, index in not_ready]
    return _text("new members", "to be ready", named, _reasons(observed, not_ready))


def awaited_replacements(observed: Observed, plan: ScalePlan, status: ScalePlanStatus) -> str:
    """Return the text for migrations, by the plan's new status."""
    starting = [move for move in status.migrations if move.phase == "Starting"]
    named = [f"{move.role} {move.replacement} for {move.index}" for move in starting]
    reasons = _reasons(observed, [(move.role, move.replacement) for move in starting])
    parts = (
        awaited_drains(observed, plan, status.draining_pods),
        _text("replacements", "to be ready", named, reasons),
    )
    return "; ".join(filter(None, parts))[:MAX_WAITING_FOR_CHARACTERS]


def awaited_removals(pods: Sequence[str]) -> str:
    """Return the text for removed pods that are not deleted yet."""
    return _text("removed pods", "to be gone", pods)


def awaited_resizes(pods: Sequence[str], problems: Iterable[str]) -> str:
    """Return the text for pods that are resized in place, and what hinders some of them for now."""
    reasons = "; ".join(sorted(problems))
    why = f" ({reasons}; it is tried again)" if reasons else ""
    return _text("pods", "to be resized in place", pods, why)


def _text(what: str, event: str, named: Sequence[str], reasons: str = "") -> str:
    if not named:
        return ""
    if len(named) <= _MAX_MEMBERS_NAMED:
        return f"{what} {event}: {', '.join(named)}{reasons}"[:MAX_WAITING_FOR_CHARACTERS]
    about = _MAX_MEMBERS_NAMED
    while 2 * about <= len(named):
        about *= 2
    return f"{about} or more {what} {event}"


def _reasons(observed: Observed, members: Sequence[MemberKey]) -> str:
    """Return why the pods of a few members do not run; empty for many members."""
    if len(members) > _MAX_MEMBERS_NAMED:
        return ""
    pods = [pod for role, index in members for pod in observed.pods_of(role).at(index)]
    reasons = {why_pending(pod) for pod in pods}
    if observed.last_refusal and {(pod.role, pod.index) for pod in pods} != set(members):
        reasons.add(observed.last_refusal)
    text = "; ".join(sorted(filter(None, reasons)))
    return f" ({text})" if text else ""
