"""Writes `waitingFor` of the status of a plan that is being executed.

Every new text is a write of the plan, and the pods of a large job change one by one. So a text
names a few members, but gives only a rounded number of many, which changes rarely.
"""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.pod_identity import MemberKey
from elasticjob_api.scaleplan import MAX_WAITING_FOR_CHARACTERS, ScalePlan, ScalePlanStatus

from elasticjob_operator.core.members.failure_policy import why_pending
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.scaling import drain

_MAX_NAMED = 10


def drains(observed: Observed, plan: ScalePlan, pods: Sequence[str]) -> str:
    """Return the text for pods that drain; empty without pods."""
    roles = {pod.role for pod in observed.pods.named(pods)}
    seconds = drain.drain_seconds(observed, plan, roles)
    return _text("pods", f"to end their training, within {seconds} s", pods)


def new_members(observed: Observed, not_ready: Sequence[MemberKey]) -> str:
    """Return the text for new members that are not ready; empty if all are ready."""
    named = [f"{role} {index}" for role, index in not_ready]
    return _text("new members", "to be ready", named, _reasons(observed, not_ready))


def migrations(observed: Observed, plan: ScalePlan, status: ScalePlanStatus) -> str:
    """Return the text for migrations, by the plan's new status."""
    starting = [move for move in status.migrations if move.phase == "Starting"]
    named = [f"{move.role} {move.replacement} for {move.index}" for move in starting]
    reasons = _reasons(observed, [(move.role, move.replacement) for move in starting])
    parts = (
        drains(observed, plan, status.draining_pods),
        _text("replacements", "to be ready", named, reasons),
    )
    return "; ".join(filter(None, parts))[:MAX_WAITING_FOR_CHARACTERS]


def removals(pods: Sequence[str]) -> str:
    """Return the text for removed pods that are not deleted yet."""
    return _text("removed pods", "to be gone", pods)


def resizes(pods: Sequence[str]) -> str:
    """Return the text for pods that are resized in place."""
    return _text("pods", "to be resized in place", pods)


def _text(what: str, event: str, named: Sequence[str], reasons: str = "") -> str:
    if not named:
        return ""
    if len(named) <= _MAX_NAMED:
        return f"{what} {event}: {', '.join(named)}{reasons}"[:MAX_WAITING_FOR_CHARACTERS]
    about = _MAX_NAMED
    while 2 * about <= len(named):
        about *= 2
    return f"{about} or more {what} {event}"


def _reasons(observed: Observed, members: Sequence[MemberKey]) -> str:
    """Return why the pods of a few members do not run; empty for many members."""
    if len(members) > _MAX_NAMED:
        return ""
    pods = [pod for role, index in members for pod in observed.pods_of(role).at(index)]
    reasons = {why_pending(pod) for pod in pods}
    if observed.last_refusal and {(pod.role, pod.index) for pod in pods} != set(members):
        reasons.add(observed.last_refusal)
    text = "; ".join(sorted(filter(None, reasons)))
    return f" ({text})" if text else ""
