"""The job's status for people and programs: phase, conditions, counts and the strings that `kubectl get` prints."""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus, Phase, ReplicaStatus
from elasticjob_api.indices import format_indices, parse_indices
from elasticjob_api.meta import Condition
from elasticjob_api.times import format_time
from msgspec.structs import replace

from elasticjob_operator.core import health
from elasticjob_operator.core.members import backoff
from elasticjob_operator.core.members.terminations import permanently_failed
from elasticjob_operator.core.model.observed import Observed

FINISHED_PHASES: tuple[Phase, ...] = ("Succeeded", "Failed")
_RUNNING, _SUSPENDED = "Running", "Suspended"
_TOLD = 3


def initialized(job: ElasticJob, now: float) -> ElasticJobStatus:
    """Return the first status of a job: from here on it is held to the size its spec asks for now."""
    roles = {
        role: ReplicaStatus(desired=spec.replicas, indices=format_indices(range(spec.replicas)))
        for role, spec in job.spec.replica_specs.items()
    }
    shown = elastic_role(job)
    return replace(
        job.status,
        phase="Pending",
        replica_statuses=roles,
        selector=f"{names.LABEL_JOB_UID}={job.metadata.uid},{names.LABEL_ROLE}={shown}",
        workers=f"0/{roles[shown].desired}",
        observed_generation=job.metadata.generation,
        start_time=format_time(now),
    )


def finished(job: ElasticJob, status: ElasticJobStatus, phase: Phase, message: str, now: float) -> ElasticJobStatus:
    """Return the status of a job that has come to its end."""
    status = replace(
        status, phase=phase, message=message, completion_time=format_time(now), current_plan=None,
        observed_generation=job.metadata.generation,
    )  # fmt: skip
    status = _with_condition(job, status, phase, True, phase, message, now)
    for kind in (_RUNNING, _SUSPENDED, "Scaling", "MasterReady", *health.KINDS):
        if any(c.type == kind for c in status.conditions):
            status = _with_condition(job, status, kind, False, f"Job{phase}", "", now)
    return status


def with_counts(observed: Observed, status: ElasticJobStatus) -> ElasticJobStatus:
    """Return the status with what the pods are doing. These fields change often and nothing is decided by them."""
    job = observed.job
    counts = {role: [0, 0] for role in status.replica_statuses}
    for pod in observed.pods:
        if pod.role in counts:
            counts[pod.role][0] += not pod.finished and not pod.terminating
            counts[pod.role][1] += pod.ready
    replicas = {
        role: replace(
            replica,
            active=counts[role][0],
            ready=counts[role][1],
            succeeded=len(parse_indices(replica.succeeded_indices)),
            failed=len(permanently_failed(job.spec.replica_specs[role], replica)),
        )
        for role, replica in status.replica_statuses.items()
    }
    shown = replicas[elastic_role(job)]
    return replace(
        status,
        replica_statuses=replicas,
        workers=f"{shown.ready}/{shown.desired}",
        restarts=sum(replica.restarts for replica in replicas.values()),
        uncounted_restarts=sum(replica.uncounted_restarts for replica in replicas.values()),
    )


def with_phase(observed: Observed, status: ElasticJobStatus, now: float) -> ElasticJobStatus:
    """Return the status with phase, conditions and the master's address; `status` has the counts."""
    job = observed.job
    master = next((pod for pod in observed.masters if not pod.finished and not pod.terminating), None)
    ready = master is not None and master.ready
    if master is not None and master.status.pod_ip:
        status = replace(status, master_address=f"{master.status.pod_ip}:{names.GRPC_PORT}")
    status = _with_condition(
        job,
        status,
        "MasterReady",
        ready,
        "Ready" if ready else "NotReady",
        "" if ready else "the master is not ready",
        now,
    )
    enough = _enough_to_start(job, status)
    started = any(c.type == _RUNNING and c.status == "True" for c in status.conditions) or enough
    status = _with_condition(
        job,
        status,
        _RUNNING,
        started,
        "Started" if started else "Waiting",
        "" if started else _missing_members(job, status),
        now,
    )
    scaling = status.current_plan is not None
    if scaling or any(c.type == "Scaling" for c in status.conditions):
        reason = "PlanRunning" if scaling else "AtRest"
        status = _with_condition(job, status, "Scaling", scaling, reason, status.current_plan or "", now)
    for found in health.findings(status):
        status = _with_condition(job, status, found.kind, found.holds, found.reason, found.message, now)
    phase: Phase = "Starting" if any(replica.active for replica in status.replica_statuses.values()) else "Pending"
    if started:
        phase = "Scaling" if scaling else "Running"
    parts = ("" if started else _missing_members(job, status), _pending_restarts(status, now), observed.last_refusal)
    message = "; ".join(text for text in parts if text)
    return replace(status, phase=phase, message=message, observed_generation=job.metadata.generation)


def with_suspension(observed: Observed, status: ElasticJobStatus, now: float) -> ElasticJobStatus:
    """Return the status of a job that is suspended, or on the way there while it still has pods."""
    job, asked = observed.job, "spec.runPolicy.suspend is true"
    status = replace(status, current_plan=None, observed_generation=job.metadata.generation)
    for kind in (_RUNNING, "Scaling", "MasterReady", *health.KINDS):
        if any(c.type == kind for c in status.conditions):
            status = _with_condition(job, status, kind, False, _SUSPENDED, asked, now)
    if observed.pods:
        message = f"suspending: {len(observed.pods)} pods are draining"
        status = _with_condition(job, status, _SUSPENDED, False, "Suspending", message, now)
        return replace(status, phase=_RUNNING if status.phase == "Scaling" else status.phase, message=message)
    status = _with_condition(job, status, _SUSPENDED, True, _SUSPENDED, asked, now)
    return replace(status, phase=_SUSPENDED, message=asked, start_time=None, master_address=None)


def without_suspension(job: ElasticJob, status: ElasticJobStatus, now: float) -> ElasticJobStatus:
    """Return the status of a job that is not suspended; its time to be active begins anew when it was."""
    if any(c.type == _SUSPENDED and (c.status, c.reason) != ("False", "Resumed") for c in status.conditions):
        status = _with_condition(job, status, _SUSPENDED, False, "Resumed", "", now)
    return status if status.start_time is not None else replace(status, start_time=format_time(now))


def is_suspended(status: ElasticJobStatus) -> bool:
    """Whether a job has no pods because it is suspended."""
    return any(c.type == _SUSPENDED and c.status == "True" for c in status.conditions)


def has_no_members_yet(status: ElasticJobStatus) -> bool:
    """Whether no pod of any member has ever been created, as for a job that was created a moment ago."""
    return all(replica.highest_index < 0 for replica in status.replica_statuses.values())


def has_too_few_members(job: ElasticJob, status: ElasticJobStatus, role: str) -> bool:
    """Whether a role has fewer members at work than the job needs to start, or, once it has started, to go on."""
    replica = status.replica_statuses[role]
    started = any(c.type == _RUNNING and c.status == "True" for c in status.conditions)
    least = job.spec.replica_specs[role].min_replicas if started else _start_size(job, role, replica)
    return _ready_or_succeeded(replica) < least


def elastic_role(job: ElasticJob) -> str:
    """Return the role that `kubectl get` shows: worker, or the first one of a job that has none."""
    return names.ROLE_WORKER if names.ROLE_WORKER in job.spec.replica_specs else next(iter(job.spec.replica_specs))


def only_counts_differ(before: ElasticJobStatus, after: ElasticJobStatus) -> bool:
    """Whether the difference can wait a moment, so that many small changes become one write."""

    def without_counts(status: ElasticJobStatus) -> ElasticJobStatus:
        replicas = {
            role: replace(replica, active=0, ready=0, succeeded=0, failed=0, started_indices="")
            for role, replica in status.replica_statuses.items()
        }
        return replace(status, replica_statuses=replicas, workers="", message="", conditions=[
            replace(condition, message="") for condition in status.conditions
        ])  # fmt: skip

    return without_counts(before) == without_counts(after)


def _enough_to_start(job: ElasticJob, status: ElasticJobStatus) -> bool:
    return all(
        _ready_or_succeeded(replica) >= _start_size(job, role, replica)
        for role, replica in status.replica_statuses.items()
    )


def _start_size(job: ElasticJob, role: str, replica: ReplicaStatus) -> int:
    if job.spec.run_policy.start_policy == "AllReady":
        return replica.desired
    return min(job.spec.replica_specs[role].min_replicas, replica.desired)


def _ready_or_succeeded(replica: ReplicaStatus) -> int:
    return replica.ready + replica.succeeded


def _missing_members(job: ElasticJob, status: ElasticJobStatus) -> str:
    short = [
        f"{_ready_or_succeeded(replica)} of {size} {role}s ready"
        for role, replica in status.replica_statuses.items()
        if _ready_or_succeeded(replica) < (size := _start_size(job, role, replica))
    ]
    return f"waiting: {', '.join(short)}" if short else ""


def _pending_restarts(status: ElasticJobStatus, now: float) -> str:
    """Return who waits for the time of its restart."""
    waits = [
        (wait.until, f"{role} {index}")
        for role, replica in status.replica_statuses.items()
        for index, wait in replica.back_off.items()
        if backoff.seconds_left(wait, now)
    ]
    master = status.master.back_off
    waits += [(master.until, "the master")] if master is not None and backoff.seconds_left(master, now) else []
    more = f" and {len(waits) - _TOLD} more" if len(waits) > _TOLD else ""
    told = ", ".join(f"{who} at {until}" for until, who in sorted(waits)[:_TOLD])
    return f"restarts: {told}{more}" if told else ""


def _with_condition(
    job: ElasticJob, status: ElasticJobStatus, kind: str, holds: bool, reason: str, message: str, now: float
) -> ElasticJobStatus:
    """Set one condition; others, also foreign ones, stay as they are."""
    old = next((condition for condition in status.conditions if condition.type == kind), None)
    text = str(holds)
    same = old is not None and old.status == text
    new = Condition(
        type=kind,
        status=text,
        reason=reason,
        message=message,
        last_transition_time=old.last_transition_time if old is not None and same else format_time(now),
        observed_generation=job.metadata.generation,
    )
    if old is None:
        return replace(status, conditions=[*status.conditions, new])
    return replace(status, conditions=[new if condition is old else condition for condition in status.conditions])
