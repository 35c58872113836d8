"""Finds out whether a job has succeeded, or can no longer succeed because no member is left."""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import Completion, ElasticJob, ElasticJobStatus
from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_api.indices import IndexSet, parse_indices

from elasticjob_operator.core.members.terminations import permanently_failed
from elasticjob_operator.core.model.plan import Indices


def has_succeeded(job: ElasticJob, status: ElasticJobStatus, members: Indices) -> bool:
    """Return whether a role has reached `minSucceeded`, or all deciding members have succeeded.

    `members` are the members per role that make up the job's size.
    """
    for role, spec in job.spec.replica_specs.items():
        min_succeeded = spec.completion.min_succeeded
        if min_succeeded is not None and len(_succeeded(status, role)) >= min_succeeded:
            return True
    roles = [role for role in _deciding_roles(job) if members[role]]
    return bool(roles) and all(_role_succeeded(job, status, role, members[role]) for role in roles)


def why_it_cannot_succeed(job: ElasticJob, status: ElasticJobStatus, members: Indices) -> str:
    """Return why the job can never succeed, although no member has failed it; empty if it can."""
    for role in _deciding_roles(job):
        remaining = members[role] - _succeeded(status, role) - _failed(job, status, role)
        if (
            members[role]
            and not remaining
            and not _role_succeeded(job, status, role, members[role])
        ):
            min_succeeded = job.spec.replica_specs[role].completion.min_succeeded
            required = (
                f", and completion.minSucceeded is {min_succeeded}"
                if min_succeeded is not None
                else ""
            )
            return (
                f"no {role} is left: {len(_succeeded(status, role))} have succeeded, "
                f"{len(_failed(job, status, role))} have failed for good{required}"
            )
    return ""


def _role_succeeded(
    job: ElasticJob, status: ElasticJobStatus, role: str, members: IndexSet
) -> bool:
    """Return whether all members of a role have succeeded.

    Without `minSucceeded`, some may have failed for good instead.
    """
    succeeded = _succeeded(status, role)
    if members <= succeeded:
        return True
    may_lack_some = (
        job.spec.replica_specs[role].completion.min_succeeded is None and succeeded & members
    )
    return bool(may_lack_some) and members <= succeeded | _failed(job, status, role)


def _succeeded(status: ElasticJobStatus, role: str) -> IndexSet:
    return parse_indices(status.replica_statuses[role].succeeded_indices)


def _failed(job: ElasticJob, status: ElasticJobStatus, role: str) -> IndexSet:
    return permanently_failed(job.spec.replica_specs[role], status.replica_statuses[role])


def _deciding_roles(job: ElasticJob) -> list[str]:
    deciding = FRAMEWORKS[job.spec.framework].deciding_role
    for role in (deciding, names.ROLE_WORKER if deciding else None):
        if role is not None and role in job.spec.replica_specs:
            return [role]
    own_end = [
        role
        for role, spec in job.spec.replica_specs.items()
        if spec.managed or spec.completion != Completion()
    ]
    return own_end or list(job.spec.replica_specs)
