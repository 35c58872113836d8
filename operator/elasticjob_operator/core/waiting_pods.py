"""Finds the pods that a job needs to start, or to continue, and why they do not run."""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJobStatus

from elasticjob_operator.core.job_status import has_too_few_members
from elasticjob_operator.core.members.failure_policy import why_pending
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
