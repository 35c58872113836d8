"""The one decision: from everything observed of a job to what to do now. Called until there is nothing left to do."""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.times import parse_time
from msgspec.structs import replace

from elasticjob_operator.core import health
from elasticjob_operator.core import status as statuses
from elasticjob_operator.core.deadlines import check_deadlines
from elasticjob_operator.core.manifests import validation
from elasticjob_operator.core.members.completion import has_succeeded, why_it_cannot_succeed
from elasticjob_operator.core.members.failure_policy import restart_rules_error
from elasticjob_operator.core.members.master import reconcile_master
from elasticjob_operator.core.members.reconcile import reconcile_members
from elasticjob_operator.core.members.reconcile_result import ReconcileResult
from elasticjob_operator.core.model import patches
from elasticjob_operator.core.model.actions import (
    Action,
    Decision,
    DeleteJob,
    EmitEvent,
    EnsureInfrastructure,
    PatchStatus,
    WriteBackReplicas,
    shortest_wait,
)
from elasticjob_operator.core.model.observed import Defaults, Observed, Pod
from elasticjob_operator.core.model.plan import current_indices
from elasticjob_operator.core.scaling.plan_queue import advance_scaling, end_plans_and_requests
from elasticjob_operator.core.suspend import suspend

COUNTS_EVERY = 1.0
"""Seconds between two writes of a status in which nothing but counts has changed."""


def decide(observed: Observed, now: float, defaults: Defaults) -> Decision:
    """Return what to do now for one job."""
    job = observed.job
    if job.metadata.deletion_timestamp is not None or job.spec.run_policy.managed_by not in (None, names.MANAGED_BY):
        return Decision()
    if job.status.phase is None:
        return _initialize(observed, now, defaults)
    if job.status.phase in statuses.FINISHED_PHASES:
        return _clean_up(observed, now)
    if job.spec.run_policy.suspend:
        return _suspend(observed, now)
    return _reconcile_active(observed, now, defaults)


def _initialize(observed: Observed, now: float, defaults: Defaults) -> Decision:
    status = statuses.initialized(observed.job, now)
    if problem := validation.problem(observed.job) or restart_rules_error(observed.job):
        return _finish(observed, statuses.finished(observed.job, status, "Failed", problem, now), problem)
    if observed.masters or observed.last_refusal or observed.job.spec.run_policy.suspend:
        return Decision((*patches.job_status(observed.job, status),))
    # Of many jobs that are created together, each gets its master before any gets what its members need.
    master = reconcile_master(observed, status, defaults=defaults, now=now)
    return Decision((EnsureInfrastructure("First"), *patches.job_status(observed.job, master.status), *master.creates))


def _reconcile_active(observed: Observed, now: float, defaults: Defaults) -> Decision:
    job = observed.job
    step = advance_scaling(observed, statuses.without_suspension(job, job.status, now), now)
    members = reconcile_members(
        observed, step.status, staying=step.staying, overrides=step.overrides, defaults=defaults, now=now
    )
    if has_succeeded(job, members.status, step.counted):
        status = statuses.with_counts(observed, members.status)
        return _finish(observed, statuses.finished(job, status, "Succeeded", "", now), "")
    master = reconcile_master(observed, members.status, defaults=defaults, now=now)
    status = statuses.with_counts(observed, master.status)
    late, next_deadline = check_deadlines(observed, status, now)
    failure = members.failure or master.failure or late or why_it_cannot_succeed(job, status, step.counted)
    if failure:
        return _finish(observed, statuses.finished(job, status, "Failed", failure, now), failure)
    status = statuses.with_phase(observed, status, now)
    # What cannot be had for pods must keep no plan from its end: what is told and stored of plans comes before them.
    told = [action for action in step.actions if isinstance(action, PatchStatus | WriteBackReplicas)]
    rest = [action for action in step.actions if action not in told]
    first: list[Action] = []
    if master.creates or (
        members.creates and not observed.infrastructure_ensured and statuses.has_no_members_yet(job.status)
    ):
        # Before a name is used up for a pod; and if it was refused, that is told before.
        held = step.status if told else job.status
        held = replace(held, message=status.message) if observed.last_refusal else held
        ensure = EnsureInfrastructure("All" if master.creates else "Rest")
        first, told = [*patches.job_status(job, held), *told, ensure], []
    work: list[Action] = [*told, *master.deletes, *members.deletes, *master.creates, *members.creates]
    work += [*rest, *master.events, *members.events]
    work += [] if first or observed.infrastructure_ensured else [EnsureInfrastructure()]
    requeue = shortest_wait(step.requeue_after, members.requeue_after, master.requeue_after, next_deadline)
    if not work and (wait := _counts_wait(observed, status, now)):
        return Decision((), shortest_wait(requeue, wait))
    if statuses.is_suspended(job.status):
        work.append(EmitEvent("JobResumed", "spec.runPolicy.suspend is false"))
    if status.phase != job.status.phase and status.phase == "Running" and job.status.phase != "Scaling":
        work.append(EmitEvent("JobRunning", f"{status.workers} workers are ready"))
    work += health.events(job.status, status)
    return Decision((*first, *patches.job_status(job, status), *work), requeue)


def _finish(observed: Observed, status: ElasticJobStatus, message: str) -> Decision:
    event = EmitEvent(f"Job{status.phase}", message or f"the job has {status.phase}", warning=status.phase == "Failed")
    return Decision((*patches.job_status(observed.job, status), event))


def _counts_wait(observed: Observed, status: ElasticJobStatus, now: float) -> float:
    """Return how long the status need not be written yet, because nothing but counts has changed; 0 for not at all."""
    if status == observed.job.status or not statuses.only_counts_differ(observed.job.status, status):
        return 0.0
    wait = observed.status_written_at + COUNTS_EVERY - now
    return wait if 0 < wait <= COUNTS_EVERY else 0.0  # a longer one: the clock was set back


def _clean_up(observed: Observed, now: float) -> Decision:
    """Clean up: pods as the policy says, whatever still wants to scale the job, and in time the job itself."""
    job, policy = observed.job, observed.job.spec.run_policy
    wait = None
    if policy.ttl_seconds_after_finished is not None and job.status.completion_time is not None:
        wait = parse_time(job.status.completion_time) + policy.ttl_seconds_after_finished - now
        if wait <= 0:
            return Decision((DeleteJob(),))
    result = ReconcileResult(replace(job.status, observed_generation=job.metadata.generation))
    for pod in observed.pods:
        if pod.role == names.ROLE_MASTER or _is_cleaned_up(pod, policy.clean_pod_policy):
            result.terminate(job, pod, now)
    reason = f"spec.jobName: ElasticJob {job.metadata.name!r} has ended ({job.status.phase})"
    work: list[Action] = [*result.deletes, *end_plans_and_requests(observed, reason, now)]
    status = statuses.with_counts(observed, result.status)
    if not work and (pause := _counts_wait(observed, status, now)):
        return Decision((), shortest_wait(wait, result.requeue_after, pause))
    return Decision((*patches.job_status(job, status), *work), shortest_wait(wait, result.requeue_after))


def _suspend(observed: Observed, now: float) -> Decision:
    """Send the pods away, and end whatever wants to scale the job, after the size it comes back with is stored."""
    job = observed.job
    result = suspend(observed, now)
    if has_succeeded(job, result.status, current_indices(result.status)):
        return _finish(
            observed, statuses.finished(job, statuses.with_counts(observed, result.status), "Succeeded", "", now), ""
        )
    status = statuses.with_suspension(observed, statuses.with_counts(observed, result.status), now)
    reason = f"spec.jobName: ElasticJob {job.metadata.name!r} is suspended"
    work: list[Action] = [*result.deletes, *end_plans_and_requests(observed, reason, now)]
    if not work and (pause := _counts_wait(observed, status, now)):
        return Decision((), shortest_wait(result.requeue_after, pause))
    if status.phase == "Suspended" != job.status.phase:
        work.append(EmitEvent("JobSuspended", status.message))
    return Decision((*patches.job_status(job, status), *work), result.requeue_after)


def _is_cleaned_up(pod: Pod, policy: str) -> bool:
    return policy == "All" or (policy == "Running" and not pod.finished)
