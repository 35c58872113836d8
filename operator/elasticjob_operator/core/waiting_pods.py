"""Finds out why the pods that a job needs to start, or to continue, do not run.

The kubelet reports a volume that it cannot mount only by an event, for example if the ConfigMap of
the submitted files does not exist. The pod's status says no more than that its containers are not
created yet. So after a while the message names what the pod mounts.
"""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.times import time_or_none

from elasticjob_operator.core.job_status import has_too_few_members
from elasticjob_operator.core.members.failure_policy import why_pending
from elasticjob_operator.core.model.actions import shortest_wait
from elasticjob_operator.core.model.observed import Observed, Pod

MOUNT_SECONDS = 60
_MAX_REASONS = 3
_MAX_REASON_CHARACTERS = 500
_MAX_MOUNTS = 5


def needed_pods(observed: Observed, status: ElasticJobStatus) -> list[Pod]:
    """Return the pending pods without which the job does not start or continue.

    These are the master's, and those of roles with too few ready members.
    """
    pending = [
        pod for pod in observed.pods if pod.status.phase == "Pending" and not pod.terminating
    ]
    roles = {
        role
        for role in {pod.role for pod in pending}
        if role == names.ROLE_MASTER or has_too_few_members(observed.job, status, role)
    }
    return [pod for pod in pending if pod.role in roles]


def why_they_wait(
    observed: Observed, status: ElasticJobStatus, now: float
) -> tuple[str, float | None]:
    """Return the reasons of the needed pods, and the seconds until another one can be due."""
    reasons: dict[str, str] = {}
    due = None
    for pod in sorted(needed_pods(observed, status), key=lambda pod: (pod.role, pod.index)):
        left = _seconds_to_mount(pod, now)
        if left is not None and left > 0:
            due = shortest_wait(due, left)
        elif len(reasons) < _MAX_REASONS and (reason := why_waiting(pod, now)):
            reasons.setdefault(reason, f"{pod.name}: {reason[:_MAX_REASON_CHARACTERS]}")
    return "; ".join(reasons.values()), due


def why_waiting(pod: Pod, now: float) -> str:
    """Return why a pending pod does not run; empty if unknown."""
    if reason := why_pending(pod):
        return reason
    left = _seconds_to_mount(pod, now)
    if left is None or left > 0:
        return ""
    text = f"its containers are not created {MOUNT_SECONDS} s after it got a node"
    mounts = [mount for volume in pod.spec.volumes if (mount := volume.must_exist)]
    if not mounts:
        return f"{text}; see its events"
    more = f" and {len(mounts) - _MAX_MOUNTS} more" if len(mounts) > _MAX_MOUNTS else ""
    return (
        f"{text}; it mounts {', '.join(mounts[:_MAX_MOUNTS])}{more}: "
        "create what does not exist, or delete the job and submit it again"
    )


def _seconds_to_mount(pod: Pod, now: float) -> float | None:
    """Return the seconds left for mounting a pod's volumes; None if they are not being mounted."""
    mounting = any(
        each.type == "PodReadyToStartContainers" and each.status == "False"
        for each in pod.status.conditions
    )
    scheduled = pod.condition("PodScheduled")
    since = time_or_none(scheduled.last_transition_time) if mounting and scheduled else None
    return None if since is None else since + MOUNT_SECONDS - now
