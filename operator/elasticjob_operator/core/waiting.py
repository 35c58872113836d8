"""Finds what a job waits for at its start: pods that do not run, and roles that wait for others.

Roles wait (`dependsOn`) at the start only, also after a suspension or a retry. Once the job runs,
members join and leave without waiting for each other. manifests/validation.py checks that the order
is possible.
"""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.job_sizes import has_started

from elasticjob_operator.core import member_counts
from elasticjob_operator.core.member_counts import has_too_few_members
from elasticjob_operator.core.members.pod_reports import why_pending
from elasticjob_operator.core.model.observed import Observed
from elasticjob_operator.core.model.pod import Pod

_MAX_REASONS = 3
_MAX_REASON_CHARACTERS = 500


def needed_pods(observed: Observed, status: ElasticJobStatus) -> list[Pod]:
    """Return the pending pods of the master, and of roles with too few ready members."""
    pending = observed.pods.pending
    needed = {
        role: role == names.ROLE_MASTER or has_too_few_members(observed.job, status, role)
        for role in {pod.role for pod in pending}
    }
    return [pod for pod in pending if needed[pod.role]]


def why_they_wait(observed: Observed, status: ElasticJobStatus) -> str:
    """Return the first reasons of the needed pods, each with one pod; empty if none is known."""
    reasons: dict[str, str] = {}
    for pod in sorted(needed_pods(observed, status), key=lambda pod: (pod.role, pod.index)):
        if reason := why_pending(pod)[:_MAX_REASON_CHARACTERS]:
            reasons.setdefault(reason, f"{pod.name}: {reason}")
        if len(reasons) == _MAX_REASONS:
            break
    return "; ".join(reasons.values())


def waiting_roles(observed: Observed, status: ElasticJobStatus) -> dict[str, list[str]]:
    """Return the roles that get no pods yet, each with the roles that it waits for.

    While something is refused and the master has no pod, that may be the master's pod. Members
    would only wait for it, and use up nodes and quota.
    """
    job = observed.job
    if observed.last_refusal and all(pod.finished for pod in observed.masters):
        return {role: [names.ROLE_MASTER] for role in job.spec.replica_specs}
    if not any(spec.depends_on for spec in job.spec.replica_specs.values()):
        return {}
    counted = member_counts.with_counts(observed, status)
    if has_started(counted):
        return {}
    waiting = {
        role: [
            needed
            for needed in spec.depends_on
            if member_counts.has_too_few_members(job, counted, needed)
        ]
        for role, spec in job.spec.replica_specs.items()
    }
    return {role: needed for role, needed in waiting.items() if needed}
