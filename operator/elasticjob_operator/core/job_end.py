"""Ends a job: stops its pods if a user ends it early, writes its final phase, and cleans up.

A job that its user stops for good, or deletes while a finalizer keeps the object, drains its
members as in a suspension, so that their work is saved. Then it is Stopped.
"""

from __future__ import annotations

from typing import Any

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus, Phase
from elasticjob_api.indices import format_indices, parse_indices
from elasticjob_api.job_sizes import why_not_scaled
from elasticjob_api.job_status import ENDED
from elasticjob_api.plain_text import printable
from elasticjob_api.times import parse_time
from msgspec.structs import replace

from elasticjob_operator.core import job_status, member_counts
from elasticjob_operator.core.end_pods import end_pods, with_members_at_rest
from elasticjob_operator.core.members.completion import has_succeeded
from elasticjob_operator.core.members.reconcile_result import ReconcileResult
from elasticjob_operator.core.members.retained_pods import excess
from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import Decision, DeleteJob, EmitEvent, shortest_wait
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.plan import current_indices
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.quota.workloads import finish_workloads
from elasticjob_operator.core.scaling.ended_plans import end_plans_and_requests
from elasticjob_operator.core.status_writes import decision_with_status

_NO_TEMPLATE: dict[str, Any] = {"spec": {"containers": [{}]}}


def finish_job(
    observed: Observed,
    status: ElasticJobStatus,
    phase: Phase,
    message: str,
    now: float,
    *,
    reason: str | None = None,
) -> Decision:
    """Write the final phase, with the phase as the reason unless another one is given.

    `clean_up_job` does everything else.
    """
    reason = reason or phase
    status = job_status.finished(observed.job, status, phase, message, now, reason=reason)
    event = EmitEvent(
        f"Job{reason}", message or f"the job has {reason}", warning=reason == "Failed"
    )
    return Decision((*patches.job_status(observed.job, status), event))


def clean_up_job(observed: Observed, now: float) -> Decision:
    """Delete a finished job's pods by its policy, end its plans, and delete the job when due.

    If the job is being deleted, no pod of it is kept.
    """
    job = observed.job
    policy = observed.job.spec.run_policy
    is_deleted = job.metadata.deletion_timestamp is not None
    clean_pod_policy = "All" if is_deleted else policy.clean_pod_policy
    ttl = None if is_deleted else policy.ttl_seconds_after_finished
    ttl_left = None
    if ttl is not None and job.status.completion_time is not None:
        ttl_left = parse_time(job.status.completion_time) + ttl - now
        if ttl_left <= 0:
            return Decision((DeleteJob(),))
    result = ReconcileResult(_with_present_pods(observed))
    too_many = excess(observed)
    for pod in (*observed.pods, *observed.retained):
        if (
            pod.role == names.ROLE_MASTER
            or pod in too_many
            or _is_cleaned_up(pod, clean_pod_policy)
        ):
            result.terminate(job, pod, now)
    reason = f"spec.jobName: ElasticJob {job.metadata.name!r} {why_not_scaled(job)}"
    return decision_with_status(
        observed,
        member_counts.with_counts(observed, result.status),
        [
            *result.deletes,
            *end_plans_and_requests(observed, reason, now),
            *finish_workloads(observed, job.status.phase or "", job.status.message, now),
        ],
        now,
        requeue_after=shortest_wait(ttl_left, result.requeue_after),
    )


def without_unused_templates(job: ElasticJob) -> ElasticJob:
    """Return a job that has ended or is suspended without its templates: it gets no pods.

    Decoded, they take ten times the memory of their JSON. The edit of the spec that resumes a job
    comes with the templates. A job that waits for quota keeps them for its Workload.
    """
    is_suspended = job.status.phase == "Suspended" and job.spec.run_policy.suspend
    if not is_suspended and job.status.phase not in ENDED:
        return job
    roles = {
        role: replace(spec, template=_NO_TEMPLATE) for role, spec in job.spec.replica_specs.items()
    }
    master = replace(job.spec.master, template={})
    return replace(job, spec=replace(job.spec, replica_specs=roles, master=master))


def _with_present_pods(observed: Observed) -> ElasticJobStatus:
    """Return the status of a finished job without the pods that have been deleted."""
    job = observed.job
    roles = {
        role: replace(
            replica,
            started_indices=format_indices(
                parse_indices(replica.started_indices) & observed.pods_of(role).present
            ),
        )
        for role, replica in job.status.replica_statuses.items()
    }
    return job_status.of_present_generation(job, replace(job.status, replica_statuses=roles))


def _is_cleaned_up(pod: Pod, policy: str) -> bool:
    return policy == "All" or (policy == "Running" and not pod.finished)


_MAX_FINALIZERS_LISTED = 3
_LONGEST_USER = 256
_FOREGROUND = "foregroundDeletion"
"""The finalizer of the garbage collector, which removes it after the job's pods."""


def why_stopped(job: ElasticJob) -> str:
    """Return why the job is to end now: by its spec, or as it is being deleted; empty if not."""
    if job.metadata.deletion_timestamp is None:
        return _stop_by_user(job) if job.spec.run_policy.stop else ""
    keep = [name for name in job.metadata.finalizers if name != _FOREGROUND]
    kept_by = f"; metadata.finalizers keep it: {', '.join(keep[:_MAX_FINALIZERS_LISTED])}"
    return f"it is being deleted{kept_by if keep else ''}"


def _stop_by_user(job: ElasticJob) -> str:
    user = job.metadata.annotations.get(names.ANNOTATION_STOPPED_BY, "")
    by = f"; stopped by {printable(user[:_LONGEST_USER])}" if user else ""
    return f"spec.runPolicy.stop is true{by}"


def stop_job(observed: Observed, now: float) -> Decision:
    """Delete the pods that have not ended; then end the job, which may have succeeded meanwhile."""
    job = observed.job
    cause = why_stopped(job)
    live = [pod for pod in observed.pods if not pod.finished]
    result = with_members_at_rest(observed)
    status = member_counts.with_counts(observed, result.status)
    if has_succeeded(job, status, current_indices(status)):
        return finish_job(observed, status, "Succeeded", "", now)
    if not live:
        is_deleted = job.metadata.deletion_timestamp is not None
        reason = "Deleted" if is_deleted else "Stopped"
        return finish_job(observed, status, "Stopped", cause, now, reason=reason)
    end_pods(result, job, live, now)
    ended = f"spec.jobName: ElasticJob {job.metadata.name!r} {why_not_scaled(job)}"
    return decision_with_status(
        observed,
        job_status.with_stop(observed, status, cause, now),
        [*result.deletes, *end_plans_and_requests(observed, ended, now)],
        now,
        requeue_after=result.requeue_after,
    )
