"""Ends the pods of a job that is suspended, stopped or retried, and keeps its size.

A running ScalePlan is undone, so that the job resumes with one definite size. Members are deleted
first, and drain within their grace period; then the master, whose state stays in its ConfigMap.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob_api.indices import IndexSet, format_indices, parse_indices
from elasticjob_api.roles import suspend_stage
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_api.times import parse_time
from msgspec.structs import replace

from elasticjob_operator.core.members.reconcile import keep_only_members, pods_by_role
from elasticjob_operator.core.members.reconcile_result import ReconcileResult
from elasticjob_operator.core.members.terminations import is_done
from elasticjob_operator.core.model.actions import DeletePod
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.pod import Pod
from elasticjob_operator.core.scaling.deleted_plan import sizes_to_return_to
from elasticjob_operator.core.scaling.member_selection import with_size
from elasticjob_operator.core.scaling.plan_manifests import is_return_plan
from elasticjob_operator.core.scaling.plan_membership import membership_of


def with_members_at_rest(observed: Observed) -> ReconcileResult:
    """Return the status of a job whose pods all end now: without a plan, with all successes."""
    result = ReconcileResult(without_running_plan(observed, observed.job.status))
    for role, pods in pods_by_role(observed).items():
        replica = result.status.replica_statuses[role]
        spec = observed.job.spec.replica_specs[role]
        members = parse_indices(replica.indices)
        done = [pod.index for pod in pods.ending.values() if is_done(spec, pod)]
        newly_succeeded = IndexSet(index for index in done if index in members)
        succeeded = format_indices(parse_indices(replica.succeeded_indices) | newly_succeeded)
        # From here on a missing pod was deleted by the operator. After the resumption no restart
        # waits.
        result.set_replica_status(
            role, replace(replica, succeeded_indices=succeeded, started_indices="", back_off={})
        )
    return result


def end_pods(result: ReconcileResult, job: ElasticJob, pods: Iterable[Pod], now: float) -> None:
    """Delete the pods that end first, in the order of a suspension."""
    for pod in _first_to_end(job, pods):
        result.terminate(job, pod, now)


def delete_outdated(observed: Observed, now: float) -> list[DeletePod]:
    """Return the deletions of pods that have a Secret whose contents are lost.

    Pods with the new contents cannot join them, so the job would lose one member after the other.
    They end in the order of a suspension.
    """
    if not observed.secret_made_anew:
        return []
    made = parse_time(observed.secret_made_anew)
    old = [pod for pod in observed.pods if not pod.finished and _created(pod) < made]
    result = ReconcileResult(observed.job.status)
    for pod in _first_to_end(observed.job, old):
        if not pod.terminating:
            result.terminate(observed.job, pod, now)
    return result.deletes


def _created(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return parse_time(created) if created else math.inf


def _first_to_end(job: ElasticJob, pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods to delete now.

    Members that save their state end before those that may store it, the master last.
    """
    pods = list(pods)
    members = [pod for pod in pods if pod.role != names.ROLE_MASTER]
    stages = {role: suspend_stage(job, role) for role in {pod.role for pod in members}}
    first = min(stages.values(), default=0)
    return [pod for pod in members if stages[pod.role] == first] or pods


def without_running_plan(observed: Observed, status: ElasticJobStatus) -> ElasticJobStatus:
    """Return the job's status with the members that it had before the running plan."""
    for plan in observed.plans:
        if plan.status.start_time is None or plan.status.phase in FINISHED:
            continue
        membership = membership_of(status, plan)
        is_return = is_return_plan(observed.job, plan.metadata.name)
        kept = (
            membership.counted
            if is_return or _is_written_back(observed, plan)
            else membership.before
        )
        replicas = {
            role: keep_only_members(replica, kept.get(role, parse_indices(replica.indices)))
            for role, replica in status.replica_statuses.items()
        }
        status = replace(status, replica_statuses=replicas)
    if status.current_plan is not None and all(
        plan.metadata.name != status.current_plan for plan in observed.plans
    ):
        status = _with_size_of_spec(observed, status)
    return status


def _with_size_of_spec(observed: Observed, status: ElasticJobStatus) -> ElasticJobStatus:
    """Return the job's status with the size of its spec, after the running plan was deleted."""
    replicas = dict(status.replica_statuses)
    sizes = sizes_to_return_to(observed)
    for role, replica in replicas.items():
        indices = parse_indices(replica.indices)
        used = indices | observed.pods_of(role).present
        size = sizes.get(role, len(indices))
        chosen = with_size(indices, size, used=used)
        replicas[role] = keep_only_members(replica, chosen)
    return replace(status, replica_statuses=replicas)


def _is_written_back(observed: Observed, plan: ScalePlan) -> bool:
    """Return whether the plan's size is written to the spec, which is done just before it ends."""
    roles = observed.job.spec.replica_specs
    return any(
        roles[role].size == len(parse_indices(plan.status.targets.get(role, ""))) != expected
        for role, expected in plan.status.spec_replicas.items()
        if role in roles
    )
