"""A suspended job: it has no pods, and comes back as it was.

What was being changed is taken back, so that the job has one size to come back with. Members go first, drained by the
time they have to end, and then the master, whose state stays in its ConfigMap.
"""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.indices import format_indices, parse_indices
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from msgspec.structs import replace

from elasticjob_operator.core.members.reconcile import keep_only_members, pods_by_role
from elasticjob_operator.core.members.reconcile_result import ReconcileResult
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.scaling.plan_membership import membership_of


def suspend(observed: Observed, now: float) -> ReconcileResult:
    """Return what a job needs that shall have no pods."""
    result = ReconcileResult(_as_before(observed))
    for role, present in pods_by_role(observed).items():
        replica = result.status.replica_statuses[role]
        done = {pod.index for pod in present if pod.training_ended and pod.training_succeeded} & parse_indices(
            replica.indices
        )
        succeeded = format_indices(parse_indices(replica.succeeded_indices) | done)
        # Whoever is missing from here on was sent away; and nobody waits any more when the job comes back.
        result.set_replica_status(role, replace(replica, succeeded_indices=succeeded, started_indices="", back_off={}))
    members = [pod for pod in observed.pods if pod.role != names.ROLE_MASTER]
    for pod in members or observed.pods:
        result.terminate(observed.job, pod, now)
    return result


def _as_before(observed: Observed) -> ElasticJobStatus:
    """Return the job's status with the members it had before the plan that is running, whose end is written later."""
    status = observed.job.status
    for plan in observed.plans:
        if plan.status.start_time is None or plan.status.phase in FINISHED:
            continue
        members = membership_of(status, plan)
        held = members.counted if _is_written_back(observed, plan) else members.before
        replicas = {
            role: keep_only_members(replica, held.get(role, parse_indices(replica.indices)))
            for role, replica in status.replica_statuses.items()
        }
        status = replace(status, replica_statuses=replicas)
    return status


def _is_written_back(observed: Observed, plan: ScalePlan) -> bool:
    """Whether the spec has the plan's size already, which is its last step but for its own end."""
    roles = observed.job.spec.replica_specs
    return any(
        roles[role].replicas == len(parse_indices(plan.status.targets.get(role, ""))) != expected
        for role, expected in plan.status.spec_replicas.items()
        if role in roles
    )
