"""Finds the roles that wait for others before the job has started (`dependsOn`).

Roles wait at the start only, also after a suspension or a retry. Once the job runs, members join
and leave without waiting for each other. manifests/validation.py checks that the order is possible.
"""

from __future__ import annotations

from elasticjob_api.elasticjob import ElasticJobStatus

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
        role: [
            needed
            for needed in spec.depends_on
            if job_status.has_too_few_members(job, counted, needed)
        ]
        for role, spec in job.spec.replica_specs.items()
    }
    return {role: needed for role, needed in waiting.items() if needed}
