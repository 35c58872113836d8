"""Reads, sets and clears a job's conditions, and computes those about the training's health.

`Ready` and `Stalled` are in the terms of kstatus, which tools for GitOps read. Ready: the cluster
is as the spec asks. Stalled: it will not come to that without an edit. Each function returns a new
status and does not change its arguments.

The master writes its findings about the training's health into `status.progress`, and nothing else.
The conditions are computed from these, so the operator writes nothing while they stay the same. A
condition that was never true is not in the status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus, Progress
from elasticjob_api.meta import Condition
from elasticjob_api.times import format_time
from msgspec.structs import replace

from elasticjob_operator.core.model.actions import EmitEvent

COMPLETE = "Complete"
FAILED = "Failed"
READY = "Ready"
STALLED = "Stalled"
PODS_REFUSED = "PodsRefused"


def condition_of(status: ElasticJobStatus, condition_type: str) -> Condition | None:
    """Return a condition; None if it was never set."""
    return next(
        (condition for condition in status.conditions if condition.type == condition_type), None
    )


def with_condition(
    job: ElasticJob,
    status: ElasticJobStatus,
    condition_type: str,
    holds: bool,
    reason: str,
    message: str,
    now: float,
) -> ElasticJobStatus:
    """Set one condition; all others stay, also those of other programs."""
    old = condition_of(status, condition_type)
    text = str(holds)
    same = old is not None and old.status == text
    new = Condition(
        type=condition_type,
        status=text,
        reason=reason,
        message=message,
        last_transition_time=old.last_transition_time
        if old is not None and same
        else format_time(now),
        observed_generation=job.metadata.generation,
    )
    if old is None:
        return replace(status, conditions=[*status.conditions, new])
    return replace(
        status,
        conditions=[new if condition is old else condition for condition in status.conditions],
    )


def without_conditions(
    job: ElasticJob,
    status: ElasticJobStatus,
    types: Iterable[str],
    reason: str,
    message: str,
    now: float,
) -> ElasticJobStatus:
    """Return the status in which none of these conditions holds.

    One that was never set stays unset.
    """
    for condition_type in types:
        if condition_of(status, condition_type) is not None:
            status = with_condition(job, status, condition_type, False, reason, message, now)
    return status


_MAX_LISTED = 10


@dataclass(frozen=True)
class HealthCondition:
    """A condition about the training's health; its reasons are also those of the events.

    Attributes:
        message: returns the finding in the master's report; empty if there is none.
        found: the reason while it holds.
        resolved: the reason after that, and `note` the text of its event.
    """

    type: str
    message: Callable[[Progress], str]
    found: str
    resolved: str
    note: str


def _stalled(progress: Progress) -> str:
    if progress.stalled_since is None:
        return ""
    since = f"no step has been finished since {progress.stalled_since}"
    why = f"; {progress.why_stalled}" if progress.why_stalled else ""
    return f"{since}; the last one is {progress.step}{why}"


def _stragglers(progress: Progress) -> str:
    if not progress.stragglers:
        return ""
    why = f"; not replaced: {progress.why_not_replaced}" if progress.why_not_replaced else ""
    return f"much slower than the others: {_join_first(sorted(progress.stragglers))}{why}"


def _unfit_nodes(progress: Progress) -> str:
    problems = [f"{pod}: {problem}" for pod, problem in sorted(progress.unfit.items())]
    return _join_first(problems, "; ")


def _join_first(texts: Sequence[str], separator: str = ", ") -> str:
    more = f"{separator}and {len(texts) - _MAX_LISTED} more" if len(texts) > _MAX_LISTED else ""
    return separator.join(texts[:_MAX_LISTED]) + more


HEALTH_CONDITIONS = (
    HealthCondition("TrainingStalled", _stalled, "Stalled", "Resumed", "steps are finished again"),
    HealthCondition(
        "Stragglers",
        _stragglers,
        "StragglersFound",
        "NoStragglers",
        "no member is much slower than the others any more",
    ),
    HealthCondition(
        "UnfitNodes",
        _unfit_nodes,
        "NodeCheckFailed",
        "AllFit",
        "no member's node fails its check any more",
    ),
    HealthCondition(
        "ProcessRestarted",
        lambda progress: progress.process_restarted,
        "TrainingProcessRestarted",
        "NoneRestarted",
        "no training process has been restarted in its pod",
    ),
)


def with_health(job: ElasticJob, status: ElasticJobStatus, now: float) -> ElasticJobStatus:
    """Return the status with these conditions by the master's report.

    One that was never true is not set.
    """
    progress = status.progress or Progress()
    for each in HEALTH_CONDITIONS:
        if message := each.message(progress):
            status = with_condition(job, status, each.type, True, each.found, message, now)
        else:
            status = without_conditions(job, status, (each.type,), each.resolved, "", now)
    return status


def health_events(before: ElasticJobStatus, after: ElasticJobStatus) -> list[EmitEvent]:
    """Return an event for each of these conditions that differs in the two statuses."""
    events = []
    for each in HEALTH_CONDITIONS:
        new = condition_of(after, each.type)
        if new is None:
            continue
        old = condition_of(before, each.type)
        was = (old.status, old.message) if old is not None else ("", "")
        if new.status == "True" and was != ("True", new.message):
            events.append(EmitEvent(new.reason, new.message, warning=True))
        elif new.status == "False" and was[0] == "True":
            events.append(EmitEvent(new.reason, each.note))
    return events
