"""Brings a job from the end of one attempt to the beginning of the next (`runPolicy.retry`)."""

from __future__ import annotations

from elasticjob_api.elasticjob import Retry

from elasticjob_operator.core import job_status, retry
from elasticjob_operator.core.deadlines import check_active_deadline
from elasticjob_operator.core.end_pods import end_pods
from elasticjob_operator.core.job_end import end_job
from elasticjob_operator.core.members.reconcile_result import ReconcileResult
from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import Decision, EmitEvent, shortest_wait
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.scaling.plan_queue import end_plans_and_requests
from elasticjob_operator.core.status_writes import decision_with_status


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
    delay_left = retry.seconds_left(status, policy, now)
    if not observed.pods and not delay_left:
        event = EmitEvent("JobRetried", f"retry {status.retries} begins")
        return Decision((*actions, *patches.job_status(job, retry.begun_anew(status)), event))
    status = job_status.with_retry(
        job, job_status.with_counts(observed, status), status.message, now
    )
    return decision_with_status(
        observed,
        status,
        actions,
        now,
        requeue_after=shortest_wait(delay_left or None, deadline_left, result.requeue_after),
    )
