"""How long the restart of a member waits: not at all the first time, then ever longer while it goes on ending.

The time is written into the job's status with the counted restart, so that a new operator waits for the same moment.
"""

from __future__ import annotations

from elasticjob_api.elasticjob import BackOff
from elasticjob_api.times import format_time, parse_time

from elasticjob_operator.core.model.observed import Pod

FIRST_SECONDS = 10
LONGEST_SECONDS = 300
LONG_RUN_SECONDS = 600
"""A pod that ran for so long was no part of a row of failures."""


def delay(failures: int) -> int:
    """Return the seconds that the restart waits after so many ends in a row."""
    if failures < 2:
        return 0
    return int(min(FIRST_SECONDS * 2 ** min(failures - 2, 10), LONGEST_SECONDS))


def after_termination(before: BackOff | None, pod: Pod | None, now: float) -> BackOff:
    """Return the back-off after one more end of a member: of this pod, or of one that has vanished."""
    started, ended = _times(pod)
    if ended is None:
        ended = now
    if started is None and before is not None:
        started = _parsed(before.until)
    long_run = started is not None and ended - started >= LONG_RUN_SECONDS
    failures = 1 if before is None or long_run else before.failures + 1
    created = _parsed(pod.metadata.creation_timestamp) if pod is not None else None
    if ended > now or (created is not None and ended < created):
        ended = now  # the node's clock is wrong
    return BackOff(failures=failures, until=format_time(ended + delay(failures)))


def seconds_left(back_off: BackOff | None, now: float) -> float:
    """Return the seconds until the next pod may start; 0 when it may.

    More than the longest wait was written by a clock that was ahead of this one.
    """
    until = _parsed(back_off.until) if back_off is not None else None
    left = 0.0 if until is None else until - now
    return left if 0 < left <= LONGEST_SECONDS else 0.0


def describe(back_off: BackOff) -> str:
    """Return what people are told about the restart."""
    pause = delay(back_off.failures)
    return f"its restart waits {pause} s, after {back_off.failures} ends in a row" if pause else "it is restarted"


def _times(pod: Pod | None) -> tuple[float | None, float | None]:
    """Return when the training in a pod began and ended, as far as it is known."""
    if pod is None:
        return None, None
    how = pod.terminated
    began = how.started_at if how else None
    if how is not None and how.finished_at:
        return _parsed(began), _parsed(how.finished_at)
    changes = [condition.last_transition_time for condition in pod.status.conditions if condition.last_transition_time]
    return _parsed(began), _parsed(max(changes, default=None))


def _parsed(text: str | None) -> float | None:
    return parse_time(text) if text else None
