"""The last failures of a job's pods, in its status.

For scripts, and for whoever looks when the pods are gone.
"""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import MAX_FAILURES, ElasticJobStatus, Failure, FailureAction
from elasticjob_api.times import format_time
from msgspec.structs import replace

from elasticjob_operator.core.members.backoff import run_times
from elasticjob_operator.core.members.failure_policy import (
    failed_container,
    last_line,
    last_words,
    signal_of,
)
from elasticjob_operator.core.model.observed import Pod

_MAX_MESSAGE = 256


def with_failure(
    status: ElasticJobStatus, pod: Pod, action: FailureAction, now: float
) -> ElasticJobStatus:
    """Return the status with one more failure, the newest first.

    The oldest one beyond the bound is dropped.
    """
    return replace(status, failures=[failure_of(pod, action, now), *status.failures][:MAX_FAILURES])


def failure_of(pod: Pod, action: FailureAction, now: float) -> Failure:
    """Return how a pod has failed.

    What somebody else has written of it may be longer than the status allows.
    """
    container = failed_container(pod)
    terminated = container.state.terminated if container is not None else None
    began, ended = run_times(pod)
    reasons = [terminated.reason if terminated else "", pod.status.reason]
    said = [reason for reason in reasons if reason and reason != "Error"] or [
        reason for reason in reasons if reason
    ]
    return Failure(
        role=pod.role,
        index=None if pod.role == names.ROLE_MASTER else pod.index,
        attempt=pod.restarts + pod.uncounted_restarts,
        pod=pod.name,
        node=pod.spec.node_name,
        container=container.name if container is not None else "",
        exit_code=terminated.exit_code if terminated else None,
        signal=(signal_of(terminated) or None) if terminated else None,
        reason=said[0] if said else "",
        message=last_line(last_words(pod))[:_MAX_MESSAGE],
        action=action,
        started_at=format_time(began) if began is not None else None,
        finished_at=format_time(now if ended is None else ended),
    )
