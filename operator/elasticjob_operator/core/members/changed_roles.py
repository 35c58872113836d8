"""Roles that are added to a job, and removed from it, while it runs.

A role that is added begins without members; one that is removed has no members any more to ask for.
So both are edits of a size, for which there is a ScalePlan as for every other. What a removed role
was is not in the spec any more, and its pods need none of it: their deletion is what tells them to
drain, and their own grace period how long they may. Its entry in the status stays until the last
pod is gone. One of the same name that is added meanwhile begins after that, and no pod of it gets a
name that was used before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from elasticjob_api import names
from elasticjob_api.elasticjob import (
    ElasticJob,
    ElasticJobStatus,
    FormerRoles,
    ReplicaSpec,
    ReplicaStatus,
)
from elasticjob_api.limits import MAX_ROLE_STATUSES
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from msgspec.structs import replace

from elasticjob_operator.core.model.identity import member_of_name
from elasticjob_operator.core.model.observed import Observed

_REMOVED = ReplicaSpec(
    template={"spec": {"containers": [{}]}},
    replicas=0,
    min_replicas=0,
    agent="None",
    auto_scale=False,
)
"""What is left of a role that is removed. Nobody orders its pods to drain, as those of a role
without an agent.
"""


def status_with_roles(observed: Observed) -> ElasticJobStatus:
    """Return the job's status with the roles that its spec has now, those that are removed, and no others.

    What it says of roles must be stored before anything is decided by it. A status that has lost
    all of them is repaired instead (core/repair.py), as is that of a role with pods in a job from
    which none was ever removed.
    """
    job = observed.job
    status = observed.job.status
    if not status.replica_statuses:
        return status
    roles = dict(status.replica_statuses)
    former = status.former_roles or FormerRoles()
    for role, replica in status.replica_statuses.items():
        if role not in job.spec.replica_specs and role != names.ROLE_MASTER and not replica.removed:
            replica = roles[role] = replace(replica, removed=True)
        if replica.removed and _is_at_rest(observed, role, replica):
            del roles[role]
            former = FormerRoles(
                highest_index=max(former.highest_index, replica.highest_index),
                incarnations=max(former.incarnations, replica.incarnations),
            )
    with_pods = {pod.role for pod in observed.pods} - {names.ROLE_MASTER}
    wanted = [role for role in job.spec.replica_specs if role not in roles]
    late = sorted(with_pods - roles.keys() - job.spec.replica_specs.keys())
    for role in [*wanted, *late]:
        has_pods = role in with_pods
        if (has_pods and status.former_roles is None and role in wanted) or len(
            roles
        ) >= MAX_ROLE_STATUSES:
            continue
        begun = ReplicaStatus(highest_index=former.highest_index, incarnations=former.incarnations)
        roles[role] = replace(begun, removed=has_pods)
    if roles == status.replica_statuses:
        return status
    return replace(
        status, replica_statuses=roles, former_roles=None if former == FormerRoles() else former
    )


def with_roles_of_status(observed: Observed) -> Observed:
    """Return what is observed as if the job had exactly the roles that its status has.

    A removed one, without members. A role has no entry yet for as long as it waits for room, or in
    a job that has ended; then nobody needs it. What a plan that has begun says about a role that
    was removed meanwhile is left out, unless the plan removes its members.
    """
    job = observed.job
    status = observed.job.status
    stored = status.replica_statuses
    with_pods = {pod.role for pod in observed.pods}
    if not stored:
        return observed
    removed = {
        role
        for role, replica in stored.items()
        if role != names.ROLE_MASTER and (replica.removed or role not in job.spec.replica_specs)
    }
    specs = {
        role: spec
        for role, spec in job.spec.replica_specs.items()
        if role not in removed and (role in stored or role in with_pods)
    }
    if not removed and len(specs) == len(job.spec.replica_specs):
        return observed
    specs |= dict.fromkeys(sorted(removed), _REMOVED)
    roles = {role: replace(replica, removed=role in removed) for role, replica in stored.items()}
    return dataclasses.replace(
        observed,
        job=replace(
            job,
            spec=replace(job.spec, replica_specs=specs),
            status=replace(status, replica_statuses=roles),
        ),
        plans=tuple(
            _without(plan, removed) if _has_begun(plan) else plan for plan in observed.plans
        ),
    )


def with_roles_of_spec(job: ElasticJob) -> ElasticJob:
    """Return the job without the roles that are removed from it."""
    roles = {role: job.spec.replica_specs[role] for role in present_roles(job)}
    return replace(job, spec=replace(job.spec, replica_specs=roles))


def present_roles(job: ElasticJob) -> list[str]:
    """Return the roles of a job without those that are removed from it."""
    stored = job.status.replica_statuses
    return [
        role for role in job.spec.replica_specs if role not in stored or not stored[role].removed
    ]


def _is_at_rest(observed: Observed, role: str, replica: ReplicaStatus) -> bool:
    """Whether a removed role has no member and no pod any more, and no plan that is being executed knows it."""
    return not (
        replica.indices
        or any(pod.role == role for pod in observed.pods)
        or role in _roles_of_names(observed, {*observed.kept, *observed.unconfirmed})
        or any(role in plan.status.targets for plan in observed.plans if _has_begun(plan))
    )


def _roles_of_names(observed: Observed, pods: Iterable[str]) -> set[str]:
    members = (member_of_name(observed.job.metadata.name, pod) for pod in pods)
    return {member.role for member in members if member is not None}


def _has_begun(plan: ScalePlan) -> bool:
    return plan.status.start_time is not None and plan.status.phase not in FINISHED


def _without(plan: ScalePlan, removed: Iterable[str]) -> ScalePlan:
    """Return a plan without what it says about these roles, except that all of their members leave."""
    spec = plan.spec
    status = plan.status
    sizes = {
        role: entry for role, entry in spec.replica_resource_specs.items() if role not in removed
    }
    gone = {role for role in removed if status.targets.get(role) != ""}
    status = replace(
        status,
        before={role: text for role, text in status.before.items() if role not in gone},
        targets={role: text for role, text in status.targets.items() if role not in gone},
        spec_replicas={
            role: size for role, size in status.spec_replicas.items() if role not in gone
        },
        resources_by_index={
            role: each for role, each in status.resources_by_index.items() if role not in gone
        },
        migrations=[move for move in status.migrations if move.role not in removed],
    )
    return replace(plan, spec=replace(spec, replica_resource_specs=sizes), status=status)
