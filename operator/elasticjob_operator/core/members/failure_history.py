"""Records the last failures of a job's pods in its status, which outlives the pods."""

from __future__ import annotations

from elasticjob_api import names
from elasticjob_api.elasticjob import (
    MAX_FAILURES,
    MAX_INT32,
    ElasticJobStatus,
    Failure,
    FailureAction,
)
from elasticjob_api.last_words import cause
from elasticjob_api.limits import MAX_COUNTER
from elasticjob_api.times import format_time
from msgspec.structs import replace

from elasticjob_operator.core.members.backoff import run_times
from elasticjob_operator.core.members.pod_reports import (
    failed_container,
    last_words,
    signal_of,
)
from elasticjob_operator.core.model.pod import Pod

_MAX_CHARACTERS = 256
_MAX_SIGNAL = 255


def with_failure(
    status: ElasticJobStatus, pod: Pod, action: FailureAction, now: float
) -> ElasticJobStatus:
    """Return the status with one more failure, the newest first, within the bound."""
    return replace(status, failures=[failure_of(pod, action, now), *status.failures][:MAX_FAILURES])


def unfit_nodes(status: ElasticJobStatus) -> tuple[str, ...]:
    """Return the nodes on which members among the last failures ended because a node is unfit."""
    found = (each.node for each in status.failures if each.exit_code == names.EXIT_UNFIT)
    return tuple(dict.fromkeys(filter(None, found)))


def failure_of(pod: Pod, action: FailureAction, now: float) -> Failure:
    """Return how a pod has failed, cut to the bounds of the status."""
    container = failed_container(pod)
    terminated = container.state.terminated if container is not None else None
    began, ended = run_times(pod)
    reasons = [terminated.reason if terminated else "", pod.status.reason]
    known = sorted(filter(None, reasons), key=lambda reason: reason == "Error")
    reason = known[0] if known else ""
    return Failure(
        role=pod.role,
        index=None if pod.role == names.ROLE_MASTER else pod.index,
        attempt=min(pod.restarts + pod.uncounted_restarts, MAX_COUNTER),
        pod=pod.name,
        node=pod.spec.node_name,
        container=container.name if container is not None else "",
        exit_code=None
        if terminated is None
        else max(-MAX_INT32, min(terminated.exit_code, MAX_INT32)),
        signal=None if terminated is None else min(signal_of(terminated), _MAX_SIGNAL) or None,
        reason=reason[:_MAX_CHARACTERS],
        message=cause(last_words(pod), terminated.exit_code if terminated else None)[
            :_MAX_CHARACTERS
        ],
        action=action,
        started_at=format_time(began) if began is not None else None,
        finished_at=format_time(now if ended is None else ended),
    )
