"""The deadlines of a job: how long it may be active, and how long its pods may wait for a node or an image."""

from __future__ import annotations

from elasticjob_operator.core.actions import sooner
from elasticjob_operator.core.clock import parse_time
from elasticjob_operator.core.observed import Observed, Pod


def overdue(seen: Observed, now: float) -> tuple[str | None, float | None]:
    """Return why the job fails because it is past a deadline, if it is; else the seconds until the next deadline."""
    policy, start = seen.job.spec.run_policy, seen.job.status.start_time
    waits: list[float] = []
    if policy.active_deadline_seconds is not None and start is not None:
        left = parse_time(start) + policy.active_deadline_seconds - now
        if left <= 0:
            return (
                f"spec.runPolicy.activeDeadlineSeconds: active for more than {policy.active_deadline_seconds} s",
                None,
            )
        waits.append(left)
    if policy.pending_deadline_seconds is not None:
        for pod in sorted(seen.pods, key=lambda pod: pod.metadata.creation_timestamp):
            if pod.status.phase != "Pending" or pod.leaving or not pod.metadata.creation_timestamp:
                continue
            left = parse_time(pod.metadata.creation_timestamp) + policy.pending_deadline_seconds - now
            if left <= 0:
                limit = policy.pending_deadline_seconds
                why = _why_pending(pod)
                return (
                    f"spec.runPolicy.pendingDeadlineSeconds: {pod.name} is Pending for more than {limit} s{why}",
                    None,
                )
            waits.append(left)
    return None, sooner(*waits)


def _why_pending(pod: Pod) -> str:
    """Return the pod's own words: what a container waits for, else what the scheduler says."""
    for status in pod.status.container_statuses:
        waiting = status.state.waiting
        if waiting is not None and waiting.reason not in ("", "ContainerCreating", "PodInitializing"):
            return f": {waiting.reason}: {waiting.message}"
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f": {condition.reason}: {condition.message}"
    return ""
