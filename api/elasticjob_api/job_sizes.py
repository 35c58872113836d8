"""The sizes that a job may have, and those that it needs, for operator and clients. Pure."""

from __future__ import annotations

from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus
from elasticjob_api.frameworks import FRAMEWORKS, framework_of
from elasticjob_api.job_status import ENDED

RUNNING = "Running"
"""The type of the condition that a job has started."""


def why_not_scaled(job: ElasticJob) -> str:
    """Return why a job takes no plans and requests now; empty if it takes them."""
    policy = job.spec.run_policy
    if job.status.phase in ENDED:
        return f"has ended ({job.status.phase})"
    if job.metadata.deletion_timestamp is not None:
        return "is being deleted"
    if policy.stop:
        return "is being stopped"
    return "is suspended" if policy.suspend else ""


def size_error(job: ElasticJob, role: str, size: int) -> str:
    """Return why a role cannot have this size; empty if it can."""
    spec = job.spec.replica_specs[role]
    framework = job.spec.framework
    if size < spec.min_replicas:
        return f"{size} members of role {role} would be below minReplicas {spec.min_replicas}"
    if spec.max_replicas is not None and size > spec.max_replicas:
        return f"{size} members of role {role} would be above maxReplicas {spec.max_replicas}"
    if size > 1 and spec.agent != "None" and role in FRAMEWORKS[framework].single_roles:
        return f"framework {framework} has one {role}, not {size}"
    if size > 1 and role == launcher_of(job):
        return f"each {role} would start a training of its own; a job has one, not {size}"
    return ""


def launcher_of(job: ElasticJob) -> str | None:
    """Return the launcher, whose member with an agent starts the training in the other roles."""
    launcher = framework_of(job.spec.framework, job.spec.replica_specs).launcher_role
    return launcher if launcher is not None and job.spec.replica_specs[launcher].managed else None


def has_started(status: ElasticJobStatus) -> bool:
    """Return whether the job has started since its last suspension or attempt."""
    return any(each.type == RUNNING and each.status == "True" for each in status.conditions)


def start_size(job: ElasticJob, status: ElasticJobStatus, role: str) -> int:
    """Return how many members of a role the job needs to start."""
    spec = job.spec.replica_specs[role]
    replica = status.replica_statuses.get(role)
    desired = spec.size if replica is None else replica.desired
    if job.spec.run_policy.start_policy == "AllReady":
        return desired
    return min(spec.min_replicas, desired)


def needed_size(job: ElasticJob, status: ElasticJobStatus, role: str) -> int:
    """Return how many members of a role the job needs to start or, once started, to continue."""
    started = has_started(status)
    return job.spec.replica_specs[role].min_replicas if started else start_size(job, status, role)


def gang_size(job: ElasticJob) -> int:
    """Return how many pods the job needs at once: the master's, and those that have not succeeded.

    kube-scheduler does not count the ended pods of a PodGroup.
    """
    replicas = job.status.replica_statuses
    left = (
        needed_size(job, job.status, role) - (replicas[role].succeeded if role in replicas else 0)
        for role in job.spec.replica_specs
    )
    return 1 + sum(max(count, 0) for count in left)
