"""Whether the order in which roles wait for each other at the start of a job (`dependsOn`) can be kept."""

from __future__ import annotations

from elasticjob_api.elasticjob import ElasticJob


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
        return f"spec.replicaSpecs.{role}.dependsOn: {', '.join(left)} wait for each other; remove one of the references"
    return None
