"""Compares the members of a job with its pods, and decides which pods to create and to delete."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

import msgspec
from elasticjob_api.elasticjob import (
    MAX_REPLICAS,
    ElasticJob,
    ElasticJobStatus,
    ReplicaSpec,
    ReplicaStatus,
)
from elasticjob_api.indices import IndexSet, format_indices, parse_indices
from msgspec.structs import replace

from elasticjob_operator.core.manifests.claims import member_claims
from elasticjob_operator.core.manifests.pods import member_pod
from elasticjob_operator.core.members import backoff
from elasticjob_operator.core.members.lost_pods import is_gone, is_uncreated, last_pod_name
from elasticjob_operator.core.members.reconcile_result import JobFailure, ReconcileResult
from elasticjob_operator.core.members.retained_pods import may_be_retained
from elasticjob_operator.core.members.terminations import count_terminations, permanently_failed
from elasticjob_operator.core.model.actions import CreatePod
from elasticjob_operator.core.model.observed import Defaults, Observed
from elasticjob_operator.core.model.plan import Indices, Quantities, with_plan_resources
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.model.pods import RolePods

T = TypeVar("T")
MAX_CREATES = 500
"""Pods created by one decision.

Few enough to react to a change, many enough for few status writes.
"""
MAX_CREATED_BYTES = 4 * 2**20
"""Size of the templates, as JSON, of which one decision makes pods; one pod may be larger.

So large templates make a decision neither long nor large.
"""


def reconcile_members(
    observed: Observed,
    status: ElasticJobStatus,
    *,
    staying: Indices,
    surplus: Mapping[str, int],
    overrides: Mapping[str, Quantities],
    waiting: Collection[str] = (),
    defaults: Defaults,
    now: float,
) -> ReconcileResult:
    """Count ended pods of every role, delete those that must leave, and create missing ones.

    Args:
        observed: the job and its pods.
        status: the job's status as decided so far.
        staying: members per role that no running plan removes; only their pods are replaced.
        surplus: pods per role beyond its `maxReplicas`, for members that are being replaced.
        overrides: resources per role that a running plan is setting.
        waiting: roles that get no new pods yet.
        defaults: what the job may leave out.
        now: seconds since the epoch.
    """
    result = ReconcileResult(status)
    grouped = pods_by_role(observed)
    for role, pods in grouped.items():
        count_terminations(result, observed.job, role, pods, staying[role], now)
        _delete_pods(result, observed.job, role, pods, staying[role], now)
    restarts = sum(replica.restarts for replica in result.status.replica_statuses.values())
    limit = observed.job.spec.run_policy.backoff_limit
    if restarts > limit and not result.failure:
        last = f": {result.events[-1].note}" if result.events else ""
        result.failure = JobFailure(
            f"{restarts} counted restarts are above runPolicy.backoffLimit {limit}{last}"
        )
    if not result.failure:
        for role, pods in grouped.items():
            if role in waiting:
                continue
            most = observed.job.spec.replica_specs[role].max_replicas
            room = (MAX_REPLICAS if most is None else most) + surplus[role]
            if (given := observed.most_members(role)) is not None:
                room = min(room, given + surplus[role])
            _create_pods(
                result,
                observed,
                role,
                pods,
                staying[role],
                room,
                overrides.get(role, {}),
                defaults,
                now,
            )
    return result


def pods_by_role(observed: Observed) -> dict[str, RolePods]:
    """Return the members' pods of every role."""
    return {role: observed.pods_of(role) for role in observed.job.status.replica_statuses}


def keep_only_members(replica: ReplicaStatus, indices: IndexSet) -> ReplicaStatus:
    """Return the role's status with these members, and with entries for no other member."""
    return replace(
        replica,
        desired=len(indices),
        indices=format_indices(indices),
        succeeded_indices=format_indices(parse_indices(replica.succeeded_indices) & indices),
        started_indices=format_indices(parse_indices(replica.started_indices) & indices),
        restarts_by_index=_entries_of(indices, replica.restarts_by_index),
        uncounted_by_index=_entries_of(indices, replica.uncounted_by_index),
        back_off=_entries_of(indices, replica.back_off),
        resources_by_index=_entries_of(indices, replica.resources_by_index),
        incarnation_by_index=_entries_of(indices, replica.incarnation_by_index),
    )


def _entries_of(indices: IndexSet, entries: Mapping[str, T]) -> dict[str, T]:
    return {key: value for key, value in entries.items() if int(key) in indices}


def _delete_pods(
    result: ReconcileResult,
    job: ElasticJob,
    role: str,
    pods: RolePods,
    staying: IndexSet,
    now: float,
) -> None:
    """Delete pods of no member, ended pods that are due, and all but the newest pod of a member."""
    spec = job.spec.replica_specs[role]
    replica = result.status.replica_statuses[role]
    members = parse_indices(replica.indices)
    replaceable = staying - _finished_members(spec, replica)
    for pod in _pods_to_examine(pods, members):
        if pod.terminating:
            result.force_delete_if_stuck(pod, spec.pod_force_delete_seconds, now)
        elif pod.index not in members or _has_newer(pods, pod):
            result.delete(pod)
        elif pod.training_ended and pod.index in replaceable and not may_be_retained(job, pod):
            if wait := _back_off_seconds(spec, replica, pod.index, now):
                result.requeue(wait)
            else:
                result.delete(pod)


def _pods_to_examine(pods: RolePods, members: IndexSet) -> Iterable[Pod]:
    """Return the pods of a role except those that are a member's only one and run."""
    few = pods.of_members(pods.shared | (pods.present - members))
    by_uid = {pod.metadata.uid: pod for pod in few}
    return (by_uid | pods.strays | pods.ending).values()


def _has_newer(pods: RolePods, pod: Pod) -> bool:
    """Return whether a pod runs although its member has a newer one that runs, too."""
    if pod.finished:
        return False
    active = [each for each in pods.at(pod.index) if not each.finished and not each.terminating]
    return pod is not max(active, key=lambda each: each.incarnation)


def _create_pods(
    result: ReconcileResult,
    observed: Observed,
    role: str,
    pods: RolePods,
    staying: IndexSet,
    room: int,
    override: Quantities,
    defaults: Defaults,
    now: float,
) -> None:
    """Create missing pods, `room` pods of the role at most, under names that were never used."""
    spec = observed.job.spec.replica_specs[role]
    replica = result.status.replica_statuses[role]
    room -= len(pods.live & staying)
    missing = staying - pods.live - _finished_members(spec, replica)
    for index in missing:
        if wait := _back_off_seconds(spec, replica, index, now):
            result.requeue(wait)
            missing = missing.with_index(index, present=False)
    highest = replica.highest_index
    incarnations = replica.incarnations
    chosen = sorted(missing)
    size = len(msgspec.json.encode(spec.template)) if missing else 0
    chosen = chosen[: max(min(_creates_left(result, size), room), 0)]
    if observed.last_refusal and chosen:
        # After a refusal, as by a quota, one pod is enough to find out whether it still holds. It
        # is another one each time, because the API server may refuse a single member, such as for
        # its memory.
        refusals = {member: position for position, member in enumerate(observed.uncreated)}
        chosen = [min(missing, key=lambda index: (refusals.get((role, index), -1), index))]
    by_index = _incarnations(replica, pods, staying)
    replica = replace(replica, incarnation_by_index=by_index)
    for index in chosen:
        first_use = index > highest
        last = last_pod_name(observed.job, role, index, replica)
        is_new = first_use or is_uncreated(observed, (role, index), last)
        if not is_new and not is_gone(observed, (role, index), last, pods.at(index)):
            result.confirm.append(last)
            continue
        highest = max(highest, index)
        if not is_new:
            incarnations += 1
            by_index = {**by_index, str(index): incarnations}
        body = member_pod(
            observed.job,
            role,
            index,
            by_index.get(str(index), 0),
            resources=with_plan_resources(result.status, role, index, override),
            restarts=replica.restarts_by_index.get(str(index), 0),
            uncounted_restarts=replica.uncounted_by_index.get(str(index), 0),
            defaults=defaults,
            default_limits=observed.default_limits,
        )
        result.creates.append(CreatePod(body, member_claims(observed.job, role, index)))
        result.created_bytes += size
    result.set_replica_status(
        role,
        replace(
            replica, highest_index=highest, incarnations=incarnations, incarnation_by_index=by_index
        ),
    )


def _creates_left(result: ReconcileResult, size: int) -> int:
    """Return how many pods the decision may still create from a template of this size."""
    by_size = (MAX_CREATED_BYTES - result.created_bytes) // max(size, 1)
    least = 0 if result.creates else 1
    return min(MAX_CREATES - len(result.creates), max(by_size, least))


def _incarnations(replica: ReplicaStatus, pods: RolePods, members: IndexSet) -> dict[str, int]:
    """Return the incarnation of each member's latest pod, also if an older operator created it."""
    known = dict(replica.incarnation_by_index)
    for pod in pods.later.values():
        if pod.incarnation > known.get(str(pod.index), 0) and pod.index in members:
            known[str(pod.index)] = pod.incarnation
    return known


def _finished_members(spec: ReplicaSpec, replica: ReplicaStatus) -> IndexSet:
    """Return the members that get no more pods."""
    return parse_indices(replica.succeeded_indices) | permanently_failed(spec, replica)


def _back_off_seconds(spec: ReplicaSpec, replica: ReplicaStatus, index: int, now: float) -> float:
    wait = replica.back_off.get(str(index))
    longest = backoff.longest_delay(spec.restart_rules)
    return backoff.seconds_left(wait, now, longest=longest)
