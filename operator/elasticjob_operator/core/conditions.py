"""Reads, sets and clears a job's conditions.

`Ready` and `Stalled` are in the terms of kstatus, which tools for GitOps read. Ready: the cluster
is as the spec asks. Stalled: it will not come to that without an edit. Each function returns a new
status and does not change its arguments.
"""

from __future__ import annotations

from collections.abc import Iterable

from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob_api.meta import Condition
from elasticjob_api.times import format_time
from msgspec.structs import replace

COMPLETE = "Complete"
FAILED = "Failed"
READY = "Ready"
STALLED = "Stalled"


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
