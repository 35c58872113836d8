"""Retries a job that has ended, from the end of one attempt to the next (`runPolicy.retry`).

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

from elasticjob_operator.core import job_status, member_counts
from elasticjob_operator.core.deadlines import check_active_deadline
from elasticjob_operator.core.end_pods import end_pods, without_running_plan
from elasticjob_operator.core.job_end import finish_job
from elasticjob_operator.core.members.backoff import most_seconds, seconds_until, spread_seconds
from elasticjob_operator.core.members.reconcile_result import JobFailure, ReconcileResult
from elasticjob_operator.core.members.retained_pods import may_be_retained
from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import Decision, EmitEvent, shortest_wait
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.scaling.ended_plans import end_plans_and_requests
from elasticjob_operator.core.status_writes import decision_with_status


def end_job(
    observed: Observed, status: ElasticJobStatus, failure: JobFailure | None, now: float
) -> Decision:
    """Finish the job, or retry it if its policy says so."""
    job = observed.job
    policy = observed.job.spec.run_policy.retry
    message = failure.message if failure else ""
    if policy is None or not is_retried(job, failure):
        return finish_job(observed, status, "Failed" if failure else "Succeeded", message, now)
    status = begin_to_retry(observed, status, policy, now)
    of_limit = f" of {policy.limit}" if policy.limit is not None else ""
    how = f"failed: {message}" if failure else "succeeded"
    message = (
        f"retry {status.retries}{of_limit} begins at {status.retry_time}, as the job has {how}"
    )
    status = job_status.with_retry(job, status, message, now)
    return Decision(
        (
            *patches.job_status(job, status),
            EmitEvent("JobRetrying", message, warning=failure is not None),
        )
    )


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


def retry_job(observed: Observed, policy: Retry, now: float) -> Decision:
    """Delete the pods of the last attempt.

    When they have ended and the delay is over, begin the next attempt.
    """
    job = observed.job
    status = job_status.without_suspension(job, job.status, now)
    failure, deadline_left = check_active_deadline(job, status, now)
    if failure:
        return end_job(observed, status, failure, now)
    result = ReconcileResult(job.status)
    end_pods(result, job, observed.pods, now)
    reason = f"spec.jobName: ElasticJob {job.metadata.name!r} begins anew, as an attempt has ended"
    actions = [*result.deletes, *end_plans_and_requests(observed, reason, now)]
    delay_left = seconds_left(status, policy, now)
    if not observed.pods and not delay_left:
        event = EmitEvent("JobRetried", f"retry {status.retries} begins")
        return Decision((*actions, *patches.job_status(job, begun_anew(status)), event))
    status = job_status.with_retry(
        job, member_counts.with_counts(observed, status), status.message, now
    )
    return decision_with_status(
        observed,
        status,
        actions,
        now,
        requeue_after=shortest_wait(delay_left or None, deadline_left, result.requeue_after),
    )
