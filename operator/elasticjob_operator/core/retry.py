"""Computes the status of a job that is retried after it has ended (`runPolicy.retry`).

A retry is like a suspension from which the job resumes: its pods end in the same order, a running
ScalePlan is undone, and the master's stored state stays, so that no shard is trained twice. Counted
restarts begin at zero.
"""

from __future__ import annotations

from elasticjob_api.elasticjob import (
    ElasticJob,
    ElasticJobStatus,
    MasterStatus,
    ReplicaStatus,
    Retry,
)
from elasticjob_api.indices import parse_indices
from elasticjob_api.times import format_time
from msgspec.structs import replace

from elasticjob_operator.core.end_pods import without_running_plan
from elasticjob_operator.core.members.backoff import most_seconds, seconds_until, spread_seconds
from elasticjob_operator.core.members.reconcile_result import JobFailure
from elasticjob_operator.core.members.retained_pods import may_be_retained
from elasticjob_operator.core.model.observed import Observed


def is_retried(job: ElasticJob, failure: JobFailure | None) -> bool:
    """Return whether the job is retried after this failure, or after a success (None)."""
    retry = job.spec.run_policy.retry
    if retry is None or (retry.limit is not None and job.status.retries >= retry.limit):
        return False
    if failure is None:
        return retry.policy == "Always"
    return failure.kind != "Deadline" and not (
        failure.kind == "Permanent" and retry.policy == "OnTransient"
    )


def begin_to_retry(
    observed: Observed, status: ElasticJobStatus, retry: Retry, now: float
) -> ElasticJobStatus:
    """Return the status of a job whose pods end now, before the next attempt."""
    seconds = spread_seconds(
        retry.min_delay_seconds,
        retry.max_delay_seconds,
        f"{observed.job.metadata.uid}/{status.retries}",
    )
    status = without_running_plan(observed, status)
    return replace(
        _with_failed_pods_outdated(observed, status),
        current_plan=None,
        retries=status.retries + 1,
        retry_time=format_time(now + seconds),
    )


def seconds_left(status: ElasticJobStatus, retry: Retry, now: float) -> float:
    """Return the seconds until the next attempt may begin; 0 when it may."""
    longest = most_seconds(retry.min_delay_seconds, retry.max_delay_seconds)
    return seconds_until(status.retry_time, now, longest=longest)


def begun_anew(status: ElasticJobStatus) -> ElasticJobStatus:
    """Return the status with which the next attempt begins: the same members and resources."""
    roles = {role: _begun_anew(replica) for role, replica in status.replica_statuses.items()}
    master = MasterStatus(incarnations=status.master.incarnations)
    return replace(status, phase="Pending", retry_time=None, replica_statuses=roles, master=master)


def _begun_anew(replica: ReplicaStatus) -> ReplicaStatus:
    return replace(
        replica,
        succeeded_indices="",
        started_indices="",
        restarts=0,
        restarts_by_index={},
        uncounted_restarts=0,
        uncounted_by_index={},
        back_off={},
    )


def _with_failed_pods_outdated(observed: Observed, status: ElasticJobStatus) -> ElasticJobStatus:
    """Return the status in which failed pods count as replaced, so that they are retained."""
    roles = dict(status.replica_statuses)
    for pod in observed.pods:
        replica = roles.get(pod.role)
        if (
            replica is not None
            and pod.index in parse_indices(replica.indices)
            and may_be_retained(observed.job, pod)
        ):
            number = replica.incarnations + 1
            by_index = {**replica.incarnation_by_index, str(pod.index): number}
            roles[pod.role] = replace(replica, incarnations=number, incarnation_by_index=by_index)
    failed_masters = any(may_be_retained(observed.job, pod) for pod in observed.masters)
    master = replace(status.master, incarnations=status.master.incarnations + failed_masters)
    return replace(status, replica_statuses=roles, master=master)
