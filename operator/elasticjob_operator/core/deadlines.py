"""Checks a job's deadlines: for its active time, and for pods that do not start.

Those wait for a node or an image, or the API server refuses them. Such a pod fails the job only if
the job needs it: if it is the master's, or its role has too few ready members. Members that a plan
adds beyond that have the plan's own timeout.
"""

from __future__ import annotations

from collections.abc import Collection

from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob_api.times import parse_time

from elasticjob_operator.core.members.pod_reports import why_pending
from elasticjob_operator.core.members.reconcile_result import JobFailure
from elasticjob_operator.core.missing_pods import needed_pods, refused_for
from elasticjob_operator.core.model.actions import CreatePod, shortest_wait
from elasticjob_operator.core.model.observed import Observed

_Check = tuple[JobFailure | None, float | None]


def check_deadlines(
    observed: Observed, status: ElasticJobStatus, now: float, due: Collection[CreatePod] = ()
) -> _Check:
    """Return why the job fails by a deadline, if it does, and the seconds until the next one.

    `status` must have the current counts of pods; `due` are the pods that are to be created now.
    """
    failure, active_left = check_active_deadline(observed.job, status, now)
    if failure:
        return failure, None
    failure, pending_left = _check_pending_deadline(observed, status, now, due)
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


def _check_pending_deadline(
    observed: Observed, status: ElasticJobStatus, now: float, due: Collection[CreatePod]
) -> _Check:
    seconds = observed.job.spec.run_policy.pending_deadline_seconds
    if seconds is None:
        return None, None
    failure, refused_left = _check_refused(observed, status, seconds, now, due)
    if failure:
        return failure, None
    failure, pending_left = _check_pending(observed, status, seconds, now)
    return failure, None if failure else shortest_wait(refused_left, pending_left)


def _check_refused(
    observed: Observed,
    status: ElasticJobStatus,
    seconds: int,
    now: float,
    due: Collection[CreatePod],
) -> _Check:
    name, refused = refused_for(observed, status, due, now)
    if not name or refused < seconds:
        return None, seconds - refused if name else None
    message = (
        f"spec.runPolicy.pendingDeadlineSeconds: {name} is refused for more than {seconds} s: "
        f"{observed.last_refusal}"
    )
    return JobFailure(message), None


def _check_pending(
    observed: Observed, status: ElasticJobStatus, seconds: int, now: float
) -> _Check:
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
