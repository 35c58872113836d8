"""The members a job shall have against the pods it has: what to create, delete, count as restart or as success."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus, ReplicaSpec, ReplicaStatus
from elasticjob_api.indices import format_indices, parse_indices
from elasticjob_api.quantity import format_memory, parse_quantity
from msgspec.structs import replace

from elasticjob_operator.core import pods
from elasticjob_operator.core.actions import CreatePod, DeletePod, EmitEvent, sooner
from elasticjob_operator.core.clock import parse_time
from elasticjob_operator.core.failures import classify
from elasticjob_operator.core.observed import Defaults, Observed, Pod
from elasticjob_operator.core.plan import Indices, Wanted, wanted_resources

CREATED_AT_ONCE = 500
"""Pods in one decision: bounds what is under way when something changes, and keeps status writes rare."""


@dataclass
class Care:
    """What the members need.

    Attributes:
        status: the job's status with the counters that must be stored before the pods are created.
        creates: pods to create.
        deletes: pods to delete.
        events: what to tell people.
        failure: why the job has failed; empty when it has not.
        requeue_after: seconds until something is due by itself.
    """

    status: ElasticJobStatus
    creates: list[CreatePod] = field(default_factory=list)
    deletes: list[DeletePod] = field(default_factory=list)
    events: list[EmitEvent] = field(default_factory=list)
    failure: str = ""
    requeue_after: float | None = None


def care_for(
    seen: Observed,
    status: ElasticJobStatus,
    *,
    staying: Indices,
    overrides: Mapping[str, Wanted],
    defaults: Defaults,
    now: float,
) -> Care:
    """Compare every role's indices with its pods.

    Args:
        seen: the job and its pods.
        status: the job's status as decided so far.
        staying: members per role that no running plan removes; only these are repaired.
        overrides: resources per role that a running plan is setting.
        defaults: what the job may leave out.
        now: the time.
    """
    care = Care(status)
    grouped: dict[str, list[Pod]] = {role: [] for role in status.replica_statuses}
    for pod in seen.pods:
        if pod.role in grouped:
            grouped[pod.role].append(pod)
    for role, present in grouped.items():
        _judge(care, seen.job, role, present, staying[role])
        _remove(care, seen.job.spec.replica_specs[role], role, present, staying[role], now)
    restarts = sum(replica.restarts for replica in care.status.replica_statuses.values())
    limit = seen.job.spec.run_policy.backoff_limit
    if restarts > limit and not care.failure:
        care.failure = f"{restarts} counted restarts are above runPolicy.backoffLimit {limit}"
    if not care.failure:
        for role, present in grouped.items():
            _create(care, seen.job, role, present, staying[role], overrides.get(role, {}), defaults)
    return care


def lost_for_good(spec: ReplicaSpec, replica: ReplicaStatus) -> frozenset[int]:
    """Return the members that have used up their restarts."""
    return frozenset(int(index) for index, n in replica.restarts_by_index.items() if n > spec.restart_limit)


def forget_members(replica: ReplicaStatus, indices: frozenset[int]) -> ReplicaStatus:
    """Return the role's status held to these indices; what was kept about other members is dropped."""
    keep = {str(index) for index in indices}
    return replace(
        replica,
        desired=len(indices),
        indices=format_indices(indices),
        succeeded_indices=format_indices(parse_indices(replica.succeeded_indices) & indices),
        restarts_by_index={key: n for key, n in replica.restarts_by_index.items() if key in keep},
        resources_by_index={key: wanted for key, wanted in replica.resources_by_index.items() if key in keep},
    )


def _judge(care: Care, job: ElasticJob, role: str, present: Sequence[Pod], staying: frozenset[int]) -> None:
    """Take finished pods into the status: successes, counted restarts, more memory, or the end of the job.

    A restart is counted as one more than the pod itself says it began with, so counting it twice changes nothing.
    """
    spec, replica = job.spec.replica_specs[role], care.status.replica_statuses[role]
    succeeded = set(parse_indices(replica.succeeded_indices))
    restarts, resources = dict(replica.restarts_by_index), dict(replica.resources_by_index)
    counted = 0
    for pod in present:
        if not pod.finished or pod.index not in staying or pod.index in succeeded:
            continue
        if pod.status.phase == "Succeeded":
            succeeded.add(pod.index)
            continue
        failure, key = classify(pod, spec.restart_rules), str(pod.index)
        if failure.action == "FailJob":
            care.failure = care.failure or f"{role} {pod.index} failed: {failure.reason}"
        if failure.action in ("Ignore", "FailJob") or restarts.get(key, 0) > pod.restarts:
            continue
        counted += 1
        restarts[key] = pod.restarts + 1
        if failure.action == "RestartWithMoreMemory":
            resources[key] = {**resources.get(key, {}), **_more_memory(pod)}
        care.events.append(EmitEvent("MemberFailed", f"{pod.name}: {failure.reason}", warning=True))
        if restarts[key] > spec.restart_limit:
            limit = f"restartLimit {spec.restart_limit} is used up"
            care.events.append(EmitEvent("MemberLost", f"{role} {pod.index}: {limit}", warning=True))
            lost = sum(n > spec.restart_limit for n in restarts.values())
            if lost >= (spec.completion.min_failed or 1):
                care.failure = care.failure or f"{role} {pod.index} failed and its {limit}: {failure.reason}"
    _store(
        care,
        role,
        replace(
            replica,
            succeeded_indices=format_indices(succeeded),
            restarts=replica.restarts + counted,
            restarts_by_index=restarts,
            resources_by_index=resources,
        ),
    )


def _remove(
    care: Care, spec: ReplicaSpec, role: str, present: Sequence[Pod], staying: frozenset[int], now: float
) -> None:
    """Delete pods of no member, failed pods that are replaced, and all but the newest of two pods of one member."""
    held = parse_indices(care.status.replica_statuses[role].indices)
    newest: dict[int, Pod] = {}
    for pod in present:
        if not pod.finished and not pod.leaving:
            newest[pod.index] = max(newest.get(pod.index, pod), pod, key=lambda p: p.incarnation)
    for pod in present:
        if pod.leaving:
            _force(care, spec, pod, now)
            continue
        stray = pod.index not in held
        replaced = pod.status.phase == "Failed" and pod.index in staying
        twin = not pod.finished and pod is not newest[pod.index]
        if stray or replaced or twin:
            care.deletes.append(DeletePod(pod.name, pod.metadata.uid))


def _force(care: Care, spec: ReplicaSpec, pod: Pod, now: float) -> None:
    if spec.pod_force_delete_seconds is None or pod.metadata.deletion_timestamp is None:
        return
    wait = parse_time(pod.metadata.deletion_timestamp) + spec.pod_force_delete_seconds - now
    if wait > 0:
        care.requeue_after = sooner(care.requeue_after, wait)
    else:
        care.deletes.append(DeletePod(pod.name, pod.metadata.uid, grace_seconds=0))


def _create(
    care: Care,
    job: ElasticJob,
    role: str,
    present: Sequence[Pod],
    staying: frozenset[int],
    override: Wanted,
    defaults: Defaults,
) -> None:
    """Create the pods that are missing, under names never used before."""
    spec, replica = job.spec.replica_specs[role], care.status.replica_statuses[role]
    live = {pod.index for pod in present if not pod.finished}
    over = parse_indices(replica.succeeded_indices) | lost_for_good(spec, replica)
    missing = sorted(staying - live - over)[: max(CREATED_AT_ONCE - len(care.creates), 0)]
    highest, incarnations = replica.highest_index, replica.incarnations
    for index in missing:
        first_use = index > highest
        highest, incarnations = max(highest, index), incarnations + (not first_use)
        body = pods.member_pod(
            job,
            role,
            index,
            0 if first_use else incarnations,
            wanted={**wanted_resources(care.status, role, index), **override},
            restarts=replica.restarts_by_index.get(str(index), 0),
            defaults=defaults,
        )
        care.creates.append(CreatePod(body))
    _store(care, role, replace(replica, highest_index=highest, incarnations=incarnations))


def _more_memory(pod: Pod) -> Wanted:
    """Twice the memory it had; nothing when it had no bound, for then the node ran out of memory."""
    resources = pod.spec.containers[0].resources if pod.spec.containers else None
    had = (resources.limits.get("memory") or resources.requests.get("memory")) if resources else None
    return {} if had is None else {"memory": format_memory(parse_quantity(had) * Decimal(2))}


def _store(care: Care, role: str, replica: ReplicaStatus) -> None:
    if replica != care.status.replica_statuses[role]:
        care.status = replace(care.status, replica_statuses={**care.status.replica_statuses, role: replica})
