"""Computes how long the restart of a member waits.

The first restart does not wait. Each further end in a row doubles the delay. A program that fails
by itself waits longer, because its restarts are counted: they are to outlast the failure of a
service that it needs. If the pod was ended from outside, the delay only avoids a busy loop. The
time of the restart is stored in the job's status, so a new operator waits for the same time.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from elasticjob_api.elasticjob import BackOff, RestartRule
from elasticjob_api.times import format_time, time_or_none

from elasticjob_operator.core.model.pod import Pod

FIRST_DELAY_SECONDS = 10
FIRST_DELAY_FROM_OUTSIDE_SECONDS = 1
MAX_DELAY_SECONDS = 300
RESET_AFTER_SECONDS = 60
"""A pod that ran at least this long resets the count of ends in a row."""
RESET_AFTER_FROM_OUTSIDE_SECONDS = 10
"""The same for an end from outside: a node has accepted the pod, so there is no busy loop."""


def delay_seconds(ends: int, *, from_outside: bool) -> int:
    """Return how long the restart waits after this number of ends in a row."""
    if ends < 2:
        return 0
    first = FIRST_DELAY_FROM_OUTSIDE_SECONDS if from_outside else FIRST_DELAY_SECONDS
    return int(min(first * 2 ** min(ends - 2, 10), MAX_DELAY_SECONDS))


def spread_seconds(least: int, most: int | None, of: str) -> int:
    """Return a delay between the bounds that depends on a name only."""
    return least + zlib.crc32(of.encode()) % (most_seconds(least, most) - least + 1)


def most_seconds(least: int, most: int | None) -> int:
    """Return the longest delay between these bounds; `least` without a second one."""
    return max(least, most or 0)


def longest_delay(rules: Iterable[RestartRule]) -> int:
    """Return how long a restart may wait at most, by back-off or by one of these rules."""
    return max(
        [
            MAX_DELAY_SECONDS,
            *(most_seconds(rule.min_delay_seconds, rule.max_delay_seconds) for rule in rules),
        ]
    )


def after_termination(
    before: BackOff | None, pod: Pod | None, now: float, *, from_outside: bool, least_delay: int = 0
) -> tuple[BackOff, str]:
    """Return the back-off after one more end of a member's pod, and a phrase for messages.

    `pod` is None if it has vanished. The restart waits for `least_delay` seconds at least.
    """
    started, ended = run_times(pod)
    if ended is None:
        ended = now
    if started is None and before is not None:
        started = time_or_none(before.until)
    long_run = RESET_AFTER_FROM_OUTSIDE_SECONDS if from_outside else RESET_AFTER_SECONDS
    reset = started is not None and ended - started >= long_run
    ends = 1 if before is None or reset else before.failures + 1
    created = time_or_none(pod.metadata.creation_timestamp) if pod is not None else None
    if ended > now or (created is not None and ended < created):
        ended = now  # the node's clock is wrong
    delay = max(delay_seconds(ends, from_outside=from_outside), least_delay)
    why = ", as a rule says" if delay == least_delay else f", after {ends} ends in a row"
    phrase = f"its restart waits {delay} s{why}" if delay else "it is restarted"
    return BackOff(failures=ends, until=format_time(ended + delay)), phrase


def seconds_left(
    back_off: BackOff | None, now: float, *, longest: int = MAX_DELAY_SECONDS
) -> float:
    """Return the seconds until the next pod may start, `longest` at most; 0 when it may."""
    return seconds_until(back_off.until if back_off is not None else None, now, longest=longest)


def seconds_until(time: str | None, now: float, *, longest: float) -> float:
    """Return the seconds until a time in a status; 0 when it is over, or there is none.

    A time further ahead than the longest delay was written by a clock that was ahead of this one,
    and is ignored.
    """
    until = time_or_none(time)
    left = 0.0 if until is None else until - now
    return left if 0 < left <= longest else 0.0


def run_times(pod: Pod | None) -> tuple[float | None, float | None]:
    """Return when the training in a pod began and ended, in seconds since the epoch.

    A time is None if it is not known.
    """
    if pod is None:
        return None, None
    terminated = pod.terminated
    began = terminated.started_at if terminated else None
    if terminated is not None and terminated.finished_at:
        return time_or_none(began), time_or_none(terminated.finished_at)
    changes = [
        condition.last_transition_time
        for condition in pod.status.conditions
        if condition.last_transition_time
    ]
    return time_or_none(began), time_or_none(max(changes, default=None))
