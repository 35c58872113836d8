"""Reads, sets and clears a job's conditions, and computes those about the training's health.

`Ready` and `Stalled` are in the terms of kstatus, which tools for GitOps read. Ready: the cluster
is as the spec asks. Stalled: it will not come to that without an edit. Each function returns a new
status and does not change its arguments.

The master writes its findings about the training's health into `status.progress`, and nothing else.
The conditions are computed from these, so the operator writes nothing while they stay the same. A
condition that was never true is not in the status.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    """One desired condition; its reason is also that of the event."""

    type: str
    holds: bool
    reason: str
    message: str = ""


TRAINING_STALLED = "TrainingStalled"
STRAGGLERS = "Stragglers"
UNFIT_NODES = "UnfitNodes"
PROCESS_RESTARTED = "ProcessRestarted"
CONDITION_TYPES = (TRAINING_STALLED, STRAGGLERS, UNFIT_NODES, PROCESS_RESTARTED)


def health_conditions(status: ElasticJobStatus) -> list[HealthCondition]:
    """Return the conditions by the master's report, without those that were never true."""
    progress = status.progress or Progress()
    existing = {condition.type for condition in status.conditions}
    desired = (
        _stalled(progress),
        _stragglers(progress),
        _unfit_nodes(progress),
        _process_restarted(progress),
    )
    return [condition for condition in desired if condition.holds or condition.type in existing]


def health_events(before: ElasticJobStatus, after: ElasticJobStatus) -> list[EmitEvent]:
    """Return an event for each of these conditions that differs in the two statuses."""
    old = {condition.type: condition for condition in before.conditions}
    events = []
    for new in after.conditions:
        if new.type not in CONDITION_TYPES:
            continue
        was = old.get(new.type)
        if new.status == "True" and (
            was is None or (was.status, was.message) != ("True", new.message)
        ):
            events.append(EmitEvent(new.reason, new.message, warning=True))
        elif new.status == "False" and was is not None and was.status == "True":
            events.append(EmitEvent(new.reason, _RESOLVED_NOTES[new.type]))
    return events


_RESOLVED_NOTES = {
    TRAINING_STALLED: "steps are finished again",
    STRAGGLERS: "no member is much slower than the others any more",
    UNFIT_NODES: "no member's node fails its check any more",
    PROCESS_RESTARTED: "no training process has been restarted in its pod",
}


def _stalled(progress: Progress) -> HealthCondition:
    if progress.stalled_since is None:
        return HealthCondition(TRAINING_STALLED, False, "Resumed")
    message = (
        f"no step has been finished since {progress.stalled_since}; the last one is {progress.step}"
    )
    if progress.why_stalled:
        message += f"; {progress.why_stalled}"
    return HealthCondition(TRAINING_STALLED, True, "Stalled", message)


def _stragglers(progress: Progress) -> HealthCondition:
    if not progress.stragglers:
        return HealthCondition(STRAGGLERS, False, "NoStragglers")
    message = f"much slower than the others: {_join_first(sorted(progress.stragglers))}"
    if progress.why_not_replaced:
        message += f"; not replaced: {progress.why_not_replaced}"
    return HealthCondition(STRAGGLERS, True, "StragglersFound", message)


def _unfit_nodes(progress: Progress) -> HealthCondition:
    if not progress.unfit:
        return HealthCondition(UNFIT_NODES, False, "AllFit")
    message = _join_first(
        [f"{pod}: {problem}" for pod, problem in sorted(progress.unfit.items())], "; "
    )
    return HealthCondition(UNFIT_NODES, True, "NodeCheckFailed", message)


def _process_restarted(progress: Progress) -> HealthCondition:
    if not progress.process_restarted:
        return HealthCondition(PROCESS_RESTARTED, False, "NoneRestarted")
    return HealthCondition(
        PROCESS_RESTARTED, True, "TrainingProcessRestarted", progress.process_restarted
    )


def _join_first(texts: Sequence[str], separator: str = ", ") -> str:
    more = f"{separator}and {len(texts) - _MAX_LISTED} more" if len(texts) > _MAX_LISTED else ""
    return separator.join(texts[:_MAX_LISTED]) + more
