"""The spec that the rest of the core reads, which differs from the stored one in its roles.

- A role whose `replicas` is unset has the size that it has now. So a manifest may leave the field
  out and be applied again at any time without undoing a change of the size. The operator also
  writes the size into the field, which `kubectl scale` and autoscalers read.
- A role that was removed from the spec stays, with a size of 0, until its last pod has ended.
- A role that was added is left out until the status has an entry for it.

The cluster's restart rules are added as well, when the job is observed (cluster_rules.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Set

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ReplicaSpec
from elasticjob_api.job_status import ENDED
from elasticjob_api.scaleplan import FINISHED, ScalePlan
from msgspec.structs import replace

from elasticjob_operator.core.model.actions import WriteBackReplicas
from elasticjob_operator.core.model.observed import Observed

_REMOVED = ReplicaSpec(
    template={"spec": {"containers": [{}]}},
    replicas=0,
    min_replicas=0,
    agent="None",
    auto_scale=False,
)
"""The spec of a removed role, whose pods drain when they are deleted."""


def with_sizes(observed: Observed) -> Observed:
    """Return what is observed as if `replicas` of every role were set."""
    job = observed.job
    specs = {
        role: replace(spec, replicas=_current_size(observed, role, spec))
        for role, spec in job.spec.replica_specs.items()
        if spec.replicas is None
    }
    if not specs:
        return observed
    specs = {**job.spec.replica_specs, **specs}
    return dataclasses.replace(
        observed, job=replace(job, spec=replace(job.spec, replica_specs=specs))
    )


def fill_in_sizes(observed: Observed) -> list[WriteBackReplicas]:
    """Return the writes of `replicas` for the roles of which it is unset in the stored spec."""
    if observed.job.status.phase in ENDED:
        return []
    stored = observed.job.status.replica_statuses
    return [
        WriteBackReplicas(role, _current_size(observed, role, spec))
        for role, spec in observed.job.spec.replica_specs.items()
        if spec.replicas is None and not (role in stored and stored[role].removed)
    ]


def with_roles_of_status(observed: Observed) -> Observed:
    """Return what is observed as if the job had exactly the roles that its status has.

    A removed role has no members. If a role was removed after a plan has begun, what the plan says
    about it is left out, unless the plan removes its members.
    """
    job = observed.job
    stored = job.status.replica_statuses
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
        if role not in removed and (role in stored or role in observed.pods.roles)
    }
    if not removed and len(specs) == len(job.spec.replica_specs):
        return observed
    specs |= dict.fromkeys(sorted(removed), _REMOVED)
    statuses = {role: replace(each, removed=role in removed) for role, each in stored.items()}
    return dataclasses.replace(
        observed,
        job=replace(
            job,
            spec=replace(job.spec, replica_specs=specs),
            status=replace(job.status, replica_statuses=statuses),
        ),
        plans=tuple(_without_removed(plan, removed) for plan in observed.plans),
    )


def present_roles(job: ElasticJob) -> list[str]:
    """Return the roles of a job without those that are removed from it."""
    stored = job.status.replica_statuses
    return [
        role for role in job.spec.replica_specs if role not in stored or not stored[role].removed
    ]


def with_present_roles(job: ElasticJob) -> ElasticJob:
    """Return the job without the roles that are removed from it."""
    roles = {role: job.spec.replica_specs[role] for role in present_roles(job)}
    return replace(job, spec=replace(job.spec, replica_specs=roles))


def is_in_progress(plan: ScalePlan) -> bool:
    """Return whether a plan has begun and not ended."""
    return plan.status.start_time is not None and plan.status.phase not in FINISHED


def _without_removed(plan: ScalePlan, removed: Set[str]) -> ScalePlan:
    """Return a plan in progress without these roles, except that all of their members leave."""
    if not is_in_progress(plan):
        return plan
    spec = plan.spec
    status = plan.status
    sizes = {
        role: entry for role, entry in spec.replica_resource_specs.items() if role not in removed
    }
    unknown = {role for role in removed if status.targets.get(role) != ""}
    status = replace(
        status,
        before={role: text for role, text in status.before.items() if role not in unknown},
        targets={role: text for role, text in status.targets.items() if role not in unknown},
        spec_replicas={
            role: size for role, size in status.spec_replicas.items() if role not in unknown
        },
        resources_by_index={
            role: each for role, each in status.resources_by_index.items() if role not in unknown
        },
        migrations=[move for move in status.migrations if move.role not in removed],
    )
    return replace(plan, spec=replace(spec, replica_resource_specs=sizes), status=status)


def _current_size(observed: Observed, role: str, spec: ReplicaSpec) -> int:
    """Return the role's size within its bounds.

    During a plan it is the size with which the plan has begun, as for an edit.
    """
    status = observed.job.status
    replica = status.replica_statuses.get(role)
    if replica is None or replica.removed:
        return spec.size
    size = replica.desired
    for plan in observed.plans:
        if plan.metadata.name == status.current_plan:
            size = plan.status.spec_replicas.get(role, size)
    size = max(size, spec.min_replicas)
    return size if spec.max_replicas is None else min(size, spec.max_replicas)
