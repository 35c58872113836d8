"""Computes the job's status: phase, conditions, message, counts and the columns of `kubectl get`.

Each function returns a new status and does not change its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from elasticjob_api import names
from elasticjob_api.addresses import host_port
from elasticjob_api.elasticjob import (
    ElasticJob,
    ElasticJobStatus,
    Phase,
    ReplicaStatus,
)
from elasticjob_api.indices import format_indices
from elasticjob_api.job_sizes import RUNNING, has_started
from elasticjob_api.times import format_time
from msgspec.structs import replace

from elasticjob_operator.core.conditions import (
    COMPLETE,
    FAILED,
    HEALTH_CONDITIONS,
    PODS_REFUSED,
    READY,
    STALLED,
    condition_of,
    with_condition,
    with_health,
    without_conditions,
)
from elasticjob_operator.core.member_counts import (
    enough_to_start,
    has_too_few_members,
    missing_members,
    printed_role,
    selector,
)
from elasticjob_operator.core.members import backoff
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.scaling.member_selection import with_size

_SUSPENDED = "Suspended"
_HEALTH = tuple(each.type for each in HEALTH_CONDITIONS)
_ACTIVE = (RUNNING, "Scaling", "MasterReady", PODS_REFUSED, *_HEALTH)
"""The conditions that only a job with pods can have."""
SUSPENDED_BY_USER = "spec.runPolicy.suspend is true"
WAITING_FOR_QUOTA = "WaitingForQuota"
_MAX_RESTARTS_LISTED = 3
_MAX_WAITING_LISTED = 3


def initialized(observed: Observed, now: float) -> ElasticJobStatus:
    """Return the first status of a job, with as many members as its spec asks for now.

    Later only plans change them. If a user has deleted the status of a running job, its pods stay
    members, and no name of a pod is used a second time.
    """
    job = observed.job
    roles = {role: _initial_role(observed, role) for role in job.spec.replica_specs}
    masters = max((pod.incarnation + 1 for pod in observed.masters), default=0)
    status = with_condition(job, job.status, READY, False, "Pending", "", now)
    return replace(
        status,
        phase="Pending",
        master=replace(status.master, incarnations=masters),
        replica_statuses=roles,
        selector=selector(job),
        workers=f"0/{roles[printed_role(job)].desired}",
        observed_generation=job.metadata.generation,
        start_time=format_time(now),
    )


def _initial_role(observed: Observed, role: str) -> ReplicaStatus:
    pods = observed.pods_of(role)
    size = observed.job.spec.replica_specs[role].size
    members = with_size(pods.live, size, used=pods.live)
    return ReplicaStatus(
        desired=size,
        indices=format_indices(members),
        highest_index=pods.highest_index,
        incarnations=pods.incarnations,
    )


def finished(
    job: ElasticJob,
    status: ElasticJobStatus,
    phase: Phase,
    message: str,
    now: float,
    *,
    reason: str,
) -> ElasticJobStatus:
    """Return the status of a job that has ended; `reason` is for the conditions.

    A job that was stopped has the condition Failed, too, for which programs wait.
    """
    status = replace(
        status, phase=phase, message=message, completion_time=format_time(now), current_plan=None,
        retry_time=None, observed_generation=job.metadata.generation, workers="",
    )  # fmt: skip
    succeeded = phase == "Succeeded"
    status = with_condition(
        job, status, COMPLETE if succeeded else FAILED, True, reason, message, now
    )
    status = with_condition(job, status, READY, succeeded, f"Job{reason}", message, now)
    if not succeeded:
        status = with_condition(job, status, STALLED, True, f"Job{reason}", message, now)
    return without_conditions(job, status, (*_ACTIVE, _SUSPENDED), f"Job{reason}", "", now)


def of_present_generation(job: ElasticJob, status: ElasticJobStatus) -> ElasticJobStatus:
    """Return the status of an ended job, on which an edit of the spec has no effect.

    The status and its conditions hold for the edited spec too. `kubectl wait` ignores conditions
    of an earlier generation.
    """
    ours = (COMPLETE, FAILED, READY, STALLED, *_ACTIVE, _SUSPENDED)
    generation = job.metadata.generation
    conditions = [
        replace(each, observed_generation=generation) if each.type in ours else each
        for each in status.conditions
    ]
    return replace(status, conditions=conditions, observed_generation=generation)


def with_phase(
    observed: Observed,
    status: ElasticJobStatus,
    now: float,
    *,
    waiting: Mapping[str, Sequence[str]] = MappingProxyType({}),
    why_pods_wait: str = "",
    why_fewer: str = "",
) -> ElasticJobStatus:
    """Return the status with phase, conditions and the master's address; `status` has the counts.

    The message names the roles that are `waiting` for others to start, and says why pods wait. The
    condition Running says why a job runs with fewer members than it wants.
    """
    job = observed.job
    master = next(
        (pod for pod in observed.masters if not pod.finished and not pod.terminating), None
    )
    ready = master is not None and master.ready
    if master is not None and master.status.pod_ip:
        status = replace(status, master_address=host_port(master.status.pod_ip, names.GRPC_PORT))
    reason = "Ready" if ready else "NotReady"
    message = "" if ready else "the master is not ready"
    status = with_condition(job, status, "MasterReady", ready, reason, message, now)
    started = has_started(status) or enough_to_start(job, status)
    missing = "" if started else missing_members(job, status)
    if missing and why_pods_wait:
        missing = f"{missing}; {why_pods_wait}"
    reason = "Started" if started else "Waiting"
    said = why_fewer if started else missing
    status = with_condition(job, status, RUNNING, started, reason, said, now)
    status = _with_readiness(job, status, missing, now)
    scaling = status.current_plan is not None
    if scaling or condition_of(status, "Scaling") is not None:
        reason = "PlanRunning" if scaling else "AtRest"
        status = with_condition(
            job, status, "Scaling", scaling, reason, status.current_plan or "", now
        )
    status = with_health(job, status, now)
    phase: Phase = "Pending"
    if started:
        phase = "Scaling" if scaling else "Running"
    elif any(replica.active for replica in status.replica_statuses.values()):
        phase = "Starting"
    order = [
        f"{role} waits for {needed[0]}"
        for role, needed in sorted(waiting.items())[:_MAX_WAITING_LISTED]
    ]
    parts = (
        missing or why_pods_wait,
        *order,
        *_too_many_members(job, status),
        _pending_restarts(job, status, now),
        observed.last_refusal,
    )
    message = "; ".join(text for text in parts if text)
    return replace(
        status, phase=phase, message=message, observed_generation=job.metadata.generation
    )


def _with_readiness(
    job: ElasticJob, status: ElasticJobStatus, missing: str, now: float
) -> ElasticJobStatus:
    """Set whether an active job trains with enough members.

    `missing` names the members without which it cannot start.
    """
    short = [role for role in status.replica_statuses if has_too_few_members(job, status, role)]
    reason = "Running" if not short and not missing else "Waiting" if missing else "TooFewMembers"
    message = missing or ", ".join(f"fewer {role}s are ready than minReplicas" for role in short)
    status = with_condition(job, status, READY, reason == "Running", reason, message, now)
    return without_conditions(job, status, (STALLED,), reason, "", now)


def with_suspension(
    observed: Observed,
    status: ElasticJobStatus,
    now: float,
    *,
    why_no_quota: str,
) -> ElasticJobStatus:
    """Return the status of a job that is being suspended, by its spec or for want of quota.

    It is Suspended when its pods have ended.
    """
    reason = WAITING_FOR_QUOTA if why_no_quota else _SUSPENDED
    cause = why_no_quota or SUSPENDED_BY_USER
    job = observed.job
    status = replace(status, current_plan=None, observed_generation=job.metadata.generation)
    status = without_conditions(job, status, _ACTIVE, _SUSPENDED, cause, now)
    if observed.pods:
        message = f"suspending: {len(observed.pods)} pods are draining"
        message += f"; {cause}" if cause != SUSPENDED_BY_USER else ""
        status = with_condition(job, status, _SUSPENDED, False, "Suspending", message, now)
        status = with_condition(job, status, READY, False, "Suspending", message, now)
        return replace(
            status, phase=RUNNING if status.phase == "Scaling" else status.phase, message=message
        )
    status = with_condition(job, status, _SUSPENDED, True, reason, cause, now)
    status = with_condition(
        job, status, READY, reason == _SUSPENDED, reason, cause, now
    )  # as the spec asks, or not yet
    return replace(status, phase=_SUSPENDED, message=cause, start_time=None, master_address=None)


def with_stop(
    observed: Observed, status: ElasticJobStatus, cause: str, now: float
) -> ElasticJobStatus:
    """Return the status of a job that a user stops or deletes, until its pods have ended."""
    status = without_conditions(observed.job, status, _ACTIVE, "Stopping", cause, now)
    status = with_condition(observed.job, status, READY, False, "Stopping", cause, now)
    return replace(
        status,
        phase=RUNNING if status.phase == "Scaling" else status.phase,
        message=f"stopping: {observed.pods.live_count} pods are draining; {cause}",
        current_plan=None,
        retry_time=None,
        observed_generation=observed.job.metadata.generation,
    )


def with_retry(
    job: ElasticJob, status: ElasticJobStatus, message: str, now: float
) -> ElasticJobStatus:
    """Return the status of a job between two attempts."""
    status = without_conditions(job, status, _ACTIVE, "Retrying", message, now)
    status = with_condition(job, status, READY, False, "Retrying", message, now)
    return replace(
        status,
        phase="Retrying",
        message=message,
        master_address=None,
        observed_generation=job.metadata.generation,
    )


def without_suspension(job: ElasticJob, status: ElasticJobStatus, now: float) -> ElasticJobStatus:
    """Return the status of a job that is not suspended.

    After a suspension its active time restarts.
    """
    suspended = condition_of(status, _SUSPENDED)
    if suspended is not None and (suspended.status, suspended.reason) != ("False", "Resumed"):
        status = with_condition(job, status, _SUSPENDED, False, "Resumed", "", now)
    return status if status.start_time is not None else replace(status, start_time=format_time(now))


def is_suspended(status: ElasticJobStatus) -> bool:
    """Return whether a job has no pods because it is suspended."""
    suspended = condition_of(status, _SUSPENDED)
    return suspended is not None and suspended.status == "True"


def waited_for_quota(status: ElasticJobStatus) -> bool:
    """Return whether a job is suspended because it has no quota."""
    suspended = condition_of(status, _SUSPENDED)
    return suspended is not None and suspended.reason == WAITING_FOR_QUOTA


def _too_many_members(job: ElasticJob, status: ElasticJobStatus) -> list[str]:
    """Return the messages for roles with more members than the spec allows."""
    bounds = {role: spec.max_replicas for role, spec in job.spec.replica_specs.items()}
    return [
        f"status.replicaStatuses.{role}.indices: {replica.desired} members are above maxReplicas "
        f"{most}"
        for role, replica in status.replica_statuses.items()
        if (most := bounds[role]) is not None and replica.desired > most
    ]


def _pending_restarts(job: ElasticJob, status: ElasticJobStatus, now: float) -> str:
    """Return the message for members that wait for their restart; empty if none waits."""
    waits = [
        (wait.until, f"{role} {index}")
        for role, replica in status.replica_statuses.items()
        for longest in [backoff.longest_delay(job.spec.replica_specs[role].restart_rules)]
        for index, wait in replica.back_off.items()
        if backoff.seconds_left(wait, now, longest=longest)
    ]
    master = status.master.back_off
    if master is not None and backoff.seconds_left(master, now):
        waits.append((master.until, "the master"))
    more = ""
    if len(waits) > _MAX_RESTARTS_LISTED:
        more = f" and {len(waits) - _MAX_RESTARTS_LISTED} more"
    listed = ", ".join(
        f"{member} at {until}" for until, member in sorted(waits)[:_MAX_RESTARTS_LISTED]
    )
    failure = f"; last failure: {status.last_failure}" if status.last_failure else ""
    return f"restarts: {listed}{more}{failure}" if listed else ""
