"""Which roles wait for others before the job has started (`dependsOn`): such as for servers that must be there first.

It is about the start only, also after a suspension or in another attempt. Once the job runs, members come and go
without waiting for each other.
"""

from __future__ import annotations

from elasticjob_api.elasticjob import ElasticJob, ElasticJobStatus

from elasticjob_operator.core import job_status
from elasticjob_operator.core.model.observed import Observed


def waiting_roles(observed: Observed, status: ElasticJobStatus) -> dict[str, list[str]]:
    """Return the roles that get no pods yet, each with the roles that it waits for."""
    job = observed.job
    if not any(spec.depends_on for spec in job.spec.replica_specs.values()):
        return {}
    counted = job_status.with_counts(observed, status)
    if job_status.has_started(counted):
        return {}
    waiting = {
        role: [needed for needed in spec.depends_on if job_status.has_too_few_members(job, counted, needed)]
        for role, spec in job.spec.replica_specs.items()
    }
    return {role: needed for role, needed in waiting.items() if needed}


def startup_order_error(job: ElasticJob) -> str | None:
    """Return why the job could never start, naming the field and the remedy; None if it can."""
    roles = job.spec.replica_specs
    left = {role: list(spec.depends_on) for role, spec in roles.items()}
    for role, needed in left.items():
        if unknown := [each for each in needed if each not in roles]:
            return f"spec.replicaSpecs.{role}.dependsOn: {unknown[0]!r} is not one of replicaSpecs; name one of them"
    gang = job.spec.run_policy.scheduling_policy.gang
    if gang != "none" and (dependent := [role for role, needed in left.items() if needed]):
        return (
            f"spec.replicaSpecs.{dependent[0]}.dependsOn: with schedulingPolicy.gang {gang} no pod starts before all "
            "of them are there; remove one of the two"
        )
    while ready := [role for role, needed in left.items() if not set(needed) & left.keys()]:
        for role in ready:
            del left[role]
    if left:
        role = next(iter(left))
        return (
            f"spec.replicaSpecs.{role}.dependsOn: {', '.join(left)} wait for each other; remove one of the references"
        )
    return None
