"""What the roles of a job are to each other.

Whose processes go on when others come and go, and who stops first.
"""

from __future__ import annotations

import sys

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.frameworks import FRAMEWORKS, framework_of, stop_stage


def kept_roles(job: ElasticJob) -> frozenset[str]:
    """Return the roles whose processes go on when the world changes, and hold what others save."""
    specs = job.spec.replica_specs
    default = framework_of(job.spec.framework, specs).kept_roles
    return frozenset(
        role
        for role, spec in specs.items()
        if (role in default if spec.on_world_change is None else spec.on_world_change == "Keep")
    )


def notified_roles(job: ElasticJob) -> frozenset[str]:
    """Return the roles whose processes go on when the world changes, and are told the new one."""
    return frozenset(
        role for role, spec in job.spec.replica_specs.items() if spec.on_world_change == "Notify"
    )


def suspend_stage(job: ElasticJob, role: str) -> int:
    """Return a role's place in the order in which a job's pods are deleted.

    Who saves something, before who holds it.
    Roles without an agent are last: nobody knows what they hold.
    """
    spec = job.spec.replica_specs.get(role)
    if spec is not None and not spec.managed:
        return sys.maxsize
    return stop_stage(role, FRAMEWORKS[job.spec.framework].stop_order, kept_roles(job))
