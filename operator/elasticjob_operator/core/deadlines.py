"""The deadlines of a job: how long it may be active, and how long its pods may wait for a node or an image.

A pod that waits fails the job only where the job cannot do without it: where it is the master, or its role has fewer
members at work than it may start with. What a plan adds beyond that is held to the plan's own time-out.
"""

from __future__ import annotations

from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob_api.times import parse_time

from elasticjob_operator.core.members.failure_policy import why_pending
from elasticjob_operator.core.model.actions import shortest_wait
from elasticjob_operator.core.model.observed import Observed, Pod
from elasticjob_operator.core.status import has_too_few_members


def check_deadlines(observed: Observed, status: ElasticJobStatus, now: float) -> tuple[str | None, float | None]:
    """Return why the job fails because it is past a deadline, if it is; else the seconds until the next one.

    `status` has the counts of now.
    """
    policy, start = observed.job.spec.run_policy, status.start_time
    waits: list[float] = []
    if policy.active_deadline_seconds is not None and start is not None:
        left = parse_time(start) + policy.active_deadline_seconds - now
        if left <= 0:
            return (
                f"spec.runPolicy.activeDeadlineSeconds: active for more than {policy.active_deadline_seconds} s",
                None,
            )
        waits.append(left)
    if policy.pending_deadline_seconds is not None:
        for pod in sorted(observed.pods, key=lambda pod: pod.metadata.creation_timestamp):
            if pod.status.phase != "Pending" or pod.terminating or not pod.metadata.creation_timestamp:
                continue
            if not _needed(observed.job, status, pod):
                continue
            left = parse_time(pod.metadata.creation_timestamp) + policy.pending_deadline_seconds - now
            if left <= 0:
                limit = policy.pending_deadline_seconds
                why = f": {words}" if (words := why_pending(pod)) else ""
                return (
                    f"spec.runPolicy.pendingDeadlineSeconds: {pod.name} is Pending for more than {limit} s{why}",
                    None,
                )
            waits.append(left)
    return None, shortest_wait(*waits)


def _needed(job: ElasticJob, status: ElasticJobStatus, pod: Pod) -> bool:
    return pod.role not in status.replica_statuses or has_too_few_members(job, status, pod.role)
