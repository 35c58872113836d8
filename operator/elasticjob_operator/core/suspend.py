"""Suspends a job, because its user says so or because it has no quota.

Its pods end; the status keeps the size and the counts with which the job is resumed.
"""

from __future__ import annotations

from elasticjob_api.job_sizes import why_not_scaled

from elasticjob_operator.core import job_status, member_counts
from elasticjob_operator.core.end_pods import end_pods, with_members_at_rest
from elasticjob_operator.core.members.completion import has_succeeded
from elasticjob_operator.core.model.actions import Action, Decision, EmitEvent
from elasticjob_operator.core.model.observed import Defaults, Observed
from elasticjob_operator.core.model.plan import current_indices
from elasticjob_operator.core.quota.workloads import delete_workloads, workloads_at_rest
from elasticjob_operator.core.retry import end_job
from elasticjob_operator.core.scaling.ended_plans import end_plans_and_requests
from elasticjob_operator.core.status_writes import decision_with_status


def suspend_job(
    observed: Observed, now: float, *, why: str = "", defaults: Defaults | None = None
) -> Decision:
    """Delete the pods, and end all plans and requests, after the size to resume with is stored.

    Args:
        observed: the job, and everything that belongs to it.
        now: seconds since the epoch.
        why: why the job has no quota; empty if its spec says that it is suspended.
        defaults: with them the job's Workload waits for quota; without, it gives its quota back.
    """
    job = observed.job
    result = with_members_at_rest(observed)
    for pod in observed.retained:
        result.terminate(job, pod, now)
    end_pods(result, job, observed.pods, now)
    status = member_counts.with_counts(observed, result.status)
    if has_succeeded(job, status, current_indices(status)):
        return end_job(observed, status, None, now)
    ended = f"spec.jobName: ElasticJob {job.metadata.name!r} {why or why_not_scaled(job)}"
    actions: list[Action] = [*result.deletes, *end_plans_and_requests(observed, ended, now)]
    if defaults is not None:
        actions += workloads_at_rest(observed, status, now, defaults)
    elif observed.quota is not None and not observed.pods:
        actions += delete_workloads(observed.quota)
    status = job_status.with_suspension(observed, status, now, why_no_quota=why)
    events = []
    if status.phase == "Suspended" != job.status.phase:
        events.append(EmitEvent("JobSuspended", status.message))
    return decision_with_status(
        observed, status, actions, now, events=events, requeue_after=result.requeue_after
    )
