"""The rules by which the operator refuses a size of a job, which clients check beforehand. Pure."""

from __future__ import annotations

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.frameworks import FRAMEWORKS, framework_of
from elasticjob_api.job_status import ENDED


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
