"""Roles whose `replicas` nobody has written: their size is the job's own, so it stays as it is.

So a manifest may leave the field out, be applied again whenever its owner likes, and never undo a
change of the size. An edit that takes the field out changes nothing. `kubectl scale` and
autoscalers read the field: it is filled in.
"""

from __future__ import annotations

import dataclasses

from elasticjob_api.elasticjob import ReplicaSpec
from msgspec.structs import replace

from elasticjob_operator.core.model.actions import WriteBackReplicas
from elasticjob_operator.core.model.observed import Observed


def with_sizes(observed: Observed) -> Observed:
    """Return what is observed as if every role's `replicas` were written."""
    job = observed.job
    if not unset_roles(observed):
        return observed
    specs = {
        role: spec
        if spec.replicas is not None
        else replace(spec, replicas=_size(observed, role, spec))
        for role, spec in job.spec.replica_specs.items()
    }
    return dataclasses.replace(
        observed, job=replace(job, spec=replace(job.spec, replica_specs=specs))
    )


def unset_roles(observed: Observed) -> list[str]:
    """Return the roles whose `replicas` is unset."""
    return [role for role, spec in observed.job.spec.replica_specs.items() if spec.replicas is None]


def fill_in(observed: Observed, roles: list[str]) -> list[WriteBackReplicas]:
    """Return the writes of these roles' sizes, which `with_sizes` has found out.

    Not of a role that is leaving.
    """
    specs = observed.job.spec.replica_specs
    stored = observed.job.status.replica_statuses
    return [
        WriteBackReplicas(role, specs[role].size)
        for role in roles
        if role not in stored or not stored[role].removed
    ]


def _size(observed: Observed, role: str, spec: ReplicaSpec) -> int:
    """Return the role's size within its bounds.

    During a plan the one with which the plan has begun, as for an edit.
    """
    replica = observed.job.status.replica_statuses.get(role)
    if replica is None or replica.removed:
        return spec.size
    active = next(
        (plan for plan in observed.plans if plan.metadata.name == observed.job.status.current_plan),
        None,
    )
    begun_with = active.status.spec_replicas.get(role) if active is not None else None
    size = max(replica.desired if begun_with is None else begun_with, spec.min_replicas)
    return size if spec.max_replicas is None else min(size, spec.max_replicas)
