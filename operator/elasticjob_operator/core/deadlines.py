"""Checks a job's deadlines: for its active time, and for pods that wait for a node or an image.

A pending pod fails the job only if the job needs it: if it is the master's, or its role has too few
ready members. Members that a plan adds beyond that have the plan's own timeout.
"""

from __future__ import annotations

from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob_api.times import parse_time

from elasticjob_operator.core.members.pod_reports import why_pending
from elasticjob_operator.core.members.reconcile_result import JobFailure
from elasticjob_operator.core.model.actions import shortest_wait
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.waiting import needed_pods

_Check = tuple[JobFailure | None, float | None]


def check_deadlines(observed: Observed, status: ElasticJobStatus, now: float) -> _Check:
    """Return why the job fails by a deadline, if it does, and the seconds until the next one.

    `status` must have the current counts of pods.
    """
    failure, active_left = check_active_deadline(observed.job, status, now)
    if failure:
        return failure, None
    failure, pending_left = _check_pending_deadline(observed, status, now)
    return failure, None if failure else shortest_wait(active_left, pending_left)


def check_active_deadline(job: ElasticJob, status: ElasticJobStatus, now: float) -> _Check:
    """Return why the job fails by its active time in all attempts, and the seconds left."""
    seconds = job.spec.run_policy.active_deadline_seconds
    if seconds is None or status.start_time is None:
        return None, None
    left = parse_time(status.start_time) + seconds - now
    if left > 0:
        return None, left
    message = f"spec.runPolicy.activeDeadlineSeconds: active for more than {seconds} s"
    return JobFailure(message, "Deadline"), None


def _check_pending_deadline(observed: Observed, status: ElasticJobStatus, now: float) -> _Check:
    seconds = observed.job.spec.run_policy.pending_deadline_seconds
    if seconds is None:
        return None, None
    created = [
        (pod.metadata.creation_timestamp, pod)
        for pod in needed_pods(observed, status)
        if pod.metadata.creation_timestamp
    ]
    if not created:
        return None, None
    first_created, pod = min(created, key=lambda item: item[0])
    left = parse_time(first_created) + seconds - now
    if left > 0:
        return None, left
    message = (
        f"spec.runPolicy.pendingDeadlineSeconds: {pod.name} is Pending for more than {seconds} s"
    )
    if reason := why_pending(pod):
        message += f": {reason}"
    return JobFailure(message), None
