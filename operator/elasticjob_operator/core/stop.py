"""Stops a job that its user ends for good, or deletes while a finalizer keeps the object.

Members drain as in a suspension, so that their work is saved. Then the job is Failed, with a reason
of its own. It has no phase of its own, because programs that wait for a job know two final phases.
"""

from __future__ import annotations

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.job_sizes import why_not_scaled

from elasticjob_operator.core import job_status
from elasticjob_operator.core.end_pods import end_pods, with_members_at_rest
from elasticjob_operator.core.job_end import finish_job
from elasticjob_operator.core.members.completion import has_succeeded
from elasticjob_operator.core.model.actions import Decision
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import current_indices
from elasticjob_operator.core.scaling.plan_queue import end_plans_and_requests
from elasticjob_operator.core.status_writes import decision_with_status

_MAX_FINALIZERS_LISTED = 3
_FOREGROUND = "foregroundDeletion"
"""The finalizer of the garbage collector, which removes it after the job's pods."""


def why_stopped(job: ElasticJob) -> str:
    """Return why the job is to end now: by its spec, or as it is being deleted; empty if not."""
    if job.metadata.deletion_timestamp is None:
        return "spec.runPolicy.stop is true" if job.spec.run_policy.stop else ""
    keep = [name for name in job.metadata.finalizers if name != _FOREGROUND]
    kept_by = f"; metadata.finalizers keep it: {', '.join(keep[:_MAX_FINALIZERS_LISTED])}"
    return f"it is being deleted{kept_by if keep else ''}"


def stop_job(observed: Observed, now: float) -> Decision:
    """Delete the pods that have not ended; then end the job, which may have succeeded meanwhile."""
    job = observed.job
    cause = why_stopped(job)
    live = [pod for pod in observed.pods if not pod.finished]
    result = with_members_at_rest(observed)
    status = job_status.with_counts(observed, result.status)
    if has_succeeded(job, status, current_indices(status)):
        return finish_job(observed, status, "Succeeded", "", now)
    if not live:
        is_deleted = job.metadata.deletion_timestamp is not None
        reason = "Deleted" if is_deleted else "Stopped"
        return finish_job(observed, status, "Failed", cause, now, reason=reason)
    end_pods(result, job, live, now)
    ended = f"spec.jobName: ElasticJob {job.metadata.name!r} {why_not_scaled(job)}"
    return decision_with_status(
        observed,
        job_status.with_stop(observed, status, cause, now),
        [*result.deletes, *end_plans_and_requests(observed, ended, now)],
        now,
        requeue_after=result.requeue_after,
    )
