"""The one decision: from everything observed of a job to what to do now. Called until there is nothing left to do."""

from __future__ import annotations

from elasticjob_api.elasticjob import ElasticJobStatus
from msgspec.structs import replace

from elasticjob_operator.core import patches, pods
from elasticjob_operator.core import status as statuses
from elasticjob_operator.core.actions import (
    Action,
    Decision,
    DeleteJob,
    DeletePod,
    EmitEvent,
    EnsureInfrastructure,
    sooner,
)
from elasticjob_operator.core.clock import parse_time
from elasticjob_operator.core.deadlines import overdue
from elasticjob_operator.core.master import care_for_master
from elasticjob_operator.core.members import care_for
from elasticjob_operator.core.observed import Defaults, Observed, Pod
from elasticjob_operator.core.scaling import end_all, scale

COUNTS_EVERY = 1.0
"""Seconds between two writes of a status in which nothing but counts has changed."""


def decide(seen: Observed, now: float, defaults: Defaults) -> Decision:
    """Return what to do now for one job."""
    job = seen.job
    if job.metadata.deletion_timestamp is not None or job.spec.run_policy.managed_by is not None:
        return Decision()
    if job.status.phase is None:
        return _take_up(seen, now, defaults)
    if job.status.phase in statuses.ENDED:
        return _after_the_end(seen, now)
    if job.spec.run_policy.suspend:
        return _suspend(seen, now)
    return _keep_going(seen, now, defaults)


def _take_up(seen: Observed, now: float, defaults: Defaults) -> Decision:
    status = statuses.taken_up(seen.job, now)
    if problem := pods.problem(seen.job, defaults):
        return _end(seen, statuses.ended(seen.job, status, "Failed", problem, now), problem)
    return Decision((*patches.job_status(seen.job, status),))


def _keep_going(seen: Observed, now: float, defaults: Defaults) -> Decision:
    job = seen.job
    step = scale(seen, job.status, now)
    members = care_for(seen, step.status, staying=step.staying, overrides=step.overrides, defaults=defaults, now=now)
    if statuses.has_succeeded(job, members.status, step.staying):
        status = statuses.with_counts(seen, members.status)
        return _end(seen, statuses.ended(job, status, "Succeeded", "", now), "")
    master = care_for_master(seen, members.status, defaults=defaults)
    late, next_deadline = overdue(seen, now)
    failure = members.failure or master.failure or late
    if failure:
        status = statuses.with_counts(seen, master.status)
        return _end(seen, statuses.ended(job, status, "Failed", failure, now), failure)
    status = statuses.with_phase(seen, statuses.with_counts(seen, master.status), now)
    work: list[Action] = [*([EnsureInfrastructure()] if master.creates else []), *master.deletes, *members.deletes]
    work += [*master.creates, *members.creates, *step.actions, *master.events, *members.events]
    requeue = sooner(step.requeue_after, members.requeue_after, next_deadline)
    if not work and statuses.only_counts_differ(job.status, status):
        wait = seen.status_written + COUNTS_EVERY - now
        if status != job.status and wait > 0:
            return Decision((), sooner(requeue, wait))
    if status.phase != job.status.phase and status.phase == "Running" and job.status.phase != "Scaling":
        work.append(EmitEvent("JobRunning", f"{status.workers} workers are ready"))
    return Decision((*patches.job_status(job, status), *work), requeue)


def _end(seen: Observed, status: ElasticJobStatus, message: str) -> Decision:
    event = EmitEvent(f"Job{status.phase}", message or f"the job has {status.phase}", warning=status.phase == "Failed")
    return Decision((*patches.job_status(seen.job, status), event))


def _after_the_end(seen: Observed, now: float) -> Decision:
    """Clean up: pods as the policy says, whatever still wants to scale the job, and in time the job itself."""
    job, policy = seen.job, seen.job.spec.run_policy
    doomed = [pod for pod in seen.pods if pod in seen.masters or _cleaned(pod, policy.clean_pod_policy)]
    actions: list[Action] = _delete(doomed)
    actions += end_all(seen, f"spec.jobName: ElasticJob {job.metadata.name!r} has ended ({job.status.phase})", now)
    status = statuses.with_counts(seen, job.status)
    actions = [*patches.job_status(job, replace(status, observed_generation=job.metadata.generation)), *actions]
    wait = None
    if policy.ttl_seconds_after_finished is not None and job.status.completion_time is not None:
        wait = parse_time(job.status.completion_time) + policy.ttl_seconds_after_finished - now
        if wait <= 0:
            return Decision((DeleteJob(),))
    return Decision(tuple(actions), wait)


def _suspend(seen: Observed, now: float) -> Decision:
    """Delete the members, which lets their agents drain, and then the master, whose state stays in its ConfigMap."""
    job = seen.job
    members = [pod for pod in seen.pods if pod not in seen.masters]
    actions: list[Action] = _delete(members or list(seen.pods))
    actions += end_all(seen, f"spec.jobName: ElasticJob {job.metadata.name!r} is suspended", now)
    status = statuses.suspended(job, statuses.with_counts(seen, job.status), now)
    return Decision((*patches.job_status(job, status), *actions))


def _cleaned(pod: Pod, policy: str) -> bool:
    return policy == "All" or (policy == "Running" and not pod.finished)


def _delete(doomed: list[Pod]) -> list[Action]:
    return [DeletePod(pod.name, pod.metadata.uid) for pod in doomed if not pod.leaving]
