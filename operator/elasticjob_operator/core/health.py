"""What the master has found out about the training's health, as conditions and events of the job.

The master writes `status.progress` and nothing else; what is made of it for people is decided here, from the whole of
it, so nothing is written while it stays the same. A condition that was never true is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elasticjob_api.elasticjob import ElasticJobStatus, Progress

from elasticjob_operator.core.model.actions import EmitEvent

_TOLD = 10


@dataclass(frozen=True)
class Finding:
    """One condition as it ought to be; `reason` is also that of the event."""

    kind: str
    holds: bool
    reason: str
    message: str = ""


STALLED, STRAGGLERS, UNFIT_NODES = "Stalled", "Stragglers", "UnfitNodes"
KINDS = (STALLED, STRAGGLERS, UNFIT_NODES)


def findings(status: ElasticJobStatus) -> list[Finding]:
    """Return what the master tells, without conditions that do not hold and never did."""
    progress = status.progress or Progress()
    there = {condition.type for condition in status.conditions}
    found = (_stalled(progress), _stragglers(progress), _unfit(progress))
    return [finding for finding in found if finding.holds or finding.kind in there]


def events(before: ElasticJobStatus, after: ElasticJobStatus) -> list[EmitEvent]:
    """Return what to tell people of a change of these conditions."""
    old = {condition.type: condition for condition in before.conditions}
    told = []
    for new in after.conditions:
        if new.type not in KINDS:
            continue
        was = old.get(new.type)
        if new.status == "True" and (was is None or (was.status, was.message) != ("True", new.message)):
            told.append(EmitEvent(new.reason, new.message, warning=True))
        elif new.status == "False" and was is not None and was.status == "True":
            told.append(EmitEvent(new.reason, _ENDS[new.type]))
    return told


_ENDS = {
    STALLED: "steps are finished again",
    STRAGGLERS: "no member is much slower than the others any more",
    UNFIT_NODES: "no member's node fails its check any more",
}


def _stalled(progress: Progress) -> Finding:
    if progress.stalled_since is None:
        return Finding(STALLED, False, "Resumed")
    text = f"no step has been finished since {progress.stalled_since}; the last one is {progress.step}"
    return Finding(STALLED, True, "Stalled", text)


def _stragglers(progress: Progress) -> Finding:
    if not progress.stragglers:
        return Finding(STRAGGLERS, False, "NoStragglers")
    text = f"much slower than the others: {_listed(sorted(progress.stragglers))}"
    return Finding(STRAGGLERS, True, "StragglersFound", text)


def _unfit(progress: Progress) -> Finding:
    if not progress.unfit:
        return Finding(UNFIT_NODES, False, "AllFit")
    text = _listed([f"{pod}: {problem}" for pod, problem in sorted(progress.unfit.items())], "; ")
    return Finding(UNFIT_NODES, True, "NodeCheckFailed", text)


def _listed(texts: Sequence[str], between: str = ", ") -> str:
    more = f"{between}and {len(texts) - _TOLD} more" if len(texts) > _TOLD else ""
    return between.join(texts[:_TOLD]) + more
