"""How long the restart of a member waits: not at all the first time, then exponentially longer with every failure.

The time of the restart is written into the job's status with its count, so a new operator waits for the same time.
"""

from __future__ import annotations

from elasticjob_api.elasticjob import BackOff
from elasticjob_api.times import format_time, parse_time

from elasticjob_operator.core.model.observed import Pod

FIRST_DELAY_SECONDS = 10
MAX_DELAY_SECONDS = 300
RESET_AFTER_SECONDS = 600
"""A pod that ran for so long resets the count of failures in a row."""


def delay_seconds(failures: int) -> int:
    """Return how long the restart waits after so many failures in a row."""
    if failures < 2:
        return 0
    return int(min(FIRST_DELAY_SECONDS * 2 ** min(failures - 2, 10), MAX_DELAY_SECONDS))


def after_termination(before: BackOff | None, pod: Pod | None, now: float) -> BackOff:
    """Return the back-off after one more termination of a member: of this pod, or of one that has vanished (None)."""
    started, ended = _run_times(pod)
    if ended is None:
        ended = now
    if started is None and before is not None:
        started = _parsed(before.until)
    reset = started is not None and ended - started >= RESET_AFTER_SECONDS
    failures = 1 if before is None or reset else before.failures + 1
    created = _parsed(pod.metadata.creation_timestamp) if pod is not None else None
    if ended > now or (created is not None and ended < created):
        ended = now  # the node's clock is wrong
    return BackOff(failures=failures, until=format_time(ended + delay_seconds(failures)))


def seconds_left(back_off: BackOff | None, now: float) -> float:
    """Return the seconds until the next pod may start; 0 when it may.

    A time further ahead than the longest delay was written by a clock that was ahead of this one, and is ignored.
    """
    until = _parsed(back_off.until) if back_off is not None else None
    left = 0.0 if until is None else until - now
    return left if 0 < left <= MAX_DELAY_SECONDS else 0.0


def describe(back_off: BackOff) -> str:
    """Return a phrase about the restart for messages."""
    delay = delay_seconds(back_off.failures)
    return f"its restart waits {delay} s, after {back_off.failures} ends in a row" if delay else "it is restarted"


def _run_times(pod: Pod | None) -> tuple[float | None, float | None]:
    """Return when the training in a pod began and ended, in seconds since the epoch, as far as it is known."""
    if pod is None:
        return None, None
    terminated = pod.terminated
    began = terminated.started_at if terminated else None
    if terminated is not None and terminated.finished_at:
        return _parsed(began), _parsed(terminated.finished_at)
    changes = [condition.last_transition_time for condition in pod.status.conditions if condition.last_transition_time]
    return _parsed(began), _parsed(max(changes, default=None))


def _parsed(text: str | None) -> float | None:
    """Return a time in seconds; None for what is no time: others may write statuses as well."""
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None
