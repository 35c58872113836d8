"""When the members have brought a job to its end: enough of them have succeeded, or none is left that could."""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_api.indices import parse_indices

from elasticjob_operator.core.members.terminations import permanently_failed
from elasticjob_operator.core.model.plan import Indices


def has_succeeded(job: ElasticJob, status: ElasticJobStatus, staying: Indices) -> bool:
    """Whether a role has reached its `minSucceeded`, or every role that decides has come well to its end."""
    for role, spec in job.spec.replica_specs.items():
        least = spec.completion.min_succeeded
        if least is not None and len(_succeeded(status, role)) >= least:
            return True
    roles = [role for role in _deciding_roles(job) if staying[role]]
    return bool(roles) and all(_role_succeeded(job, status, role, staying[role]) for role in roles)


def why_it_cannot_succeed(job: ElasticJob, status: ElasticJobStatus, staying: Indices) -> str:
    """Return why the job can never succeed, although no member has failed it; empty while it can."""
    for role in _deciding_roles(job):
        left = staying[role] - _succeeded(status, role) - _failed(job, status, role)
        if staying[role] and not left and not _role_succeeded(job, status, role, staying[role]):
            least = job.spec.replica_specs[role].completion.min_succeeded
            wanted = f", and completion.minSucceeded is {least}" if least is not None else ""
            return (
                f"no {role} is left: {len(_succeeded(status, role))} have succeeded, "
                f"{len(_failed(job, status, role))} have failed for good{wanted}"
            )
    return ""


def _role_succeeded(job: ElasticJob, status: ElasticJobStatus, role: str, staying: frozenset[int]) -> bool:
    """Whether all members of a role have succeeded; those that it can do without may have failed."""
    succeeded = _succeeded(status, role)
    if staying <= succeeded:
        return True
    enough = job.spec.replica_specs[role].completion.min_succeeded is None and succeeded & staying
    return bool(enough) and staying <= succeeded | _failed(job, status, role)


def _succeeded(status: ElasticJobStatus, role: str) -> frozenset[int]:
    return parse_indices(status.replica_statuses[role].succeeded_indices)


def _failed(job: ElasticJob, status: ElasticJobStatus, role: str) -> frozenset[int]:
    return permanently_failed(job.spec.replica_specs[role], status.replica_statuses[role])


def _deciding_roles(job: ElasticJob) -> list[str]:
    decider = FRAMEWORKS[job.spec.framework].deciding_role
    for role in (decider, names.ROLE_WORKER if decider else None):
        if role is not None and role in job.spec.replica_specs:
            return [role]
    return list(job.spec.replica_specs)
