"""Stops a job that its user ends for good.

Members drain as in a suspension, so that their work is saved. Then the job is Failed, with a reason
of its own. It has no phase of its own, because programs that wait for a job know two final phases.
"""

from __future__ import annotations

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

_CAUSE = "spec.runPolicy.stop is true"


def stop_job(observed: Observed, now: float) -> Decision:
    """Delete the pods that have not ended; then end the job, which may have succeeded meanwhile."""
    job = observed.job
    live = [pod for pod in observed.pods if not pod.finished]
    result = with_members_at_rest(observed)
    status = job_status.with_counts(observed, result.status)
    if has_succeeded(job, status, current_indices(status)):
        return finish_job(observed, status, "Succeeded", "", now)
    if not live:
        return finish_job(observed, status, "Failed", _CAUSE, now, reason="Stopped")
    end_pods(result, job, live, now)
    reason = f"spec.jobName: ElasticJob {job.metadata.name!r} {why_not_scaled(job)}"
    return decision_with_status(
        observed,
        job_status.with_stop(observed, status, _CAUSE, now),
        [*result.deletes, *end_plans_and_requests(observed, reason, now)],
        now,
        requeue_after=result.requeue_after,
    )
