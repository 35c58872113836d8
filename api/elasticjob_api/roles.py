"""How the roles of a job depend on each other: whose processes continue, and who stops first."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.frameworks import FRAMEWORKS, framework_of, stop_stage


def kept_roles(job: ElasticJob) -> frozenset[str]:
    """Return the roles whose processes continue when the world changes, and hold others' state."""
    specs = job.spec.replica_specs
    default = framework_of(job.spec.framework, specs).kept_roles
    kept = set()
    for role, spec in specs.items():
        if spec.on_world_change == "Keep" or (spec.on_world_change is None and role in default):
            kept.add(role)
    return frozenset(kept)


def notified_roles(job: ElasticJob) -> frozenset[str]:
    """Return the roles whose processes continue when the world changes, and get the new one."""
    return frozenset(
        role for role, spec in job.spec.replica_specs.items() if spec.on_world_change == "Notify"
    )


def suspend_stage(job: ElasticJob, role: str) -> int:
    """Return a role's place in the order in which a job's pods are deleted.

    Roles that save state stop before roles that hold it. Roles without an agent are last, because
    it is not known what they hold.
    """
    spec = job.spec.replica_specs.get(role)
    if spec is not None and not spec.managed:
        return sys.maxsize
    return stop_stage(role, FRAMEWORKS[job.spec.framework].stop_order, kept_roles(job))


def uses_host_network(job: ElasticJob) -> bool:
    """Return whether members have their nodes' addresses, which pods of other jobs may have too."""
    specs = (role.template.get("spec") for role in job.spec.replica_specs.values())
    return any(isinstance(spec, Mapping) and spec.get("hostNetwork") for spec in specs)
