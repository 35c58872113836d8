"""Writes the job's status before the actions it describes, and counts once a second."""

from __future__ import annotations

from collections.abc import Sequence

from elasticjob_api.elasticjob import ElasticJobStatus

from elasticjob_operator.core import member_counts
from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import Action, Decision, EmitEvent, shortest_wait
from elasticjob_operator.core.model.observed import Observed

COUNTS_WRITE_INTERVAL = 1.0
"""Seconds between two writes of a status in which nothing but counts has changed."""


def decision_with_status(
    observed: Observed,
    status: ElasticJobStatus,
    actions: Sequence[Action],
    now: float,
    *,
    prerequisites: Sequence[Action] = (),
    events: Sequence[EmitEvent] = (),
    requeue_after: float | None,
) -> Decision:
    """Return the decision: prerequisites, then the status, then actions, then events.

    If only counts have changed and nothing is to be done, the status is written later.
    """
    is_idle = not actions and not prerequisites
    if is_idle and (wait := _seconds_until_counts_are_written(observed, status, now)):
        return Decision((), shortest_wait(requeue_after, wait))
    status_write = patches.job_status(observed.job, status)
    return Decision((*prerequisites, *status_write, *actions, *events), requeue_after)


def _seconds_until_counts_are_written(
    observed: Observed, status: ElasticJobStatus, now: float
) -> float:
    """Return how long the write of changed counts may wait; 0 if something else has changed."""
    if status == observed.job.status or not member_counts.only_counts_differ(
        observed.job.status, status
    ):
        return 0.0
    wait = observed.status_written_at + COUNTS_WRITE_INTERVAL - now
    is_plausible = 0 < wait <= COUNTS_WRITE_INTERVAL  # it is longer if the clock was set back
    return wait if is_plausible else 0.0
