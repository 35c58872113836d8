"""Computes how long training stood still in a job, from the logs of its processes and from the
record.

Pure. All times are in seconds on the monotonic clock. Time in which a user suspended the job is
excluded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.support.chaos.samples import ProcessLog

DISTURBING = ("kill-agent", "kill-training", "delete-worker")
"""The faults after which a member's process is a new one."""
_PAUSE_SECONDS = 1.0
"""More than the time from one sample to the next while a job trains, also on a busy machine."""


@dataclass
class Latencies:
    """Durations in seconds.

    Attributes:
        restarts: the time from the kill of a member to the first sample of the next world.
        rescales: the time from a request of a size to the first sample of a world of this size.
        idle: the time in which no process of a job trains, between its first and its last one.
        total: between the first and the last samples of all jobs.
    """

    restarts: list[float] = field(default_factory=list)
    rescales: list[float] = field(default_factory=list)
    idle: float = 0.0
    total: float = 0.0

    def rows(self) -> list[tuple[str, str]]:
        """Return names and values for a table."""
        return [
            ("kill to step", _spread(self.restarts)),
            ("request to step", _spread(self.rescales)),
            ("no training", f"{self.idle:.0f} of {self.total:.0f} s"),
        ]


@dataclass(frozen=True)
class _Sample:
    at: float
    round: int
    size: int


def measure(
    into: Latencies,
    logs: Iterable[ProcessLog],
    kills: Iterable[float],
    rescales: Iterable[tuple[float, int]],
    suspended: Sequence[float],
) -> None:
    """Add the lost time of one job to that of the jobs before it.

    A successful change of size has a time and a size.
    """
    samples = sorted(
        (
            _Sample(line["at"], log.begin["round"], log.begin["size"])
            for log in logs
            for line in log.lines
            if "trained" in line
        ),
        key=lambda sample: sample.at,
    )
    if not samples:
        return
    for kill in kills:
        _add(into.restarts, samples, kill, suspended, size=None)
    for at, size in rescales:
        _add(into.rescales, samples, at, suspended, size=size)
    for one, following in itertools.pairwise(samples):
        pause = following.at - one.at
        if any(one.at <= at <= following.at for at in suspended):
            continue
        into.total += pause
        into.idle += pause if pause > _PAUSE_SECONDS else 0.0


def _add(
    to: list[float],
    samples: list[_Sample],
    since: float,
    suspended: Sequence[float],
    *,
    size: int | None,
) -> None:
    """Add the time until the first sample of a later world of a given size.

    Add nothing if there is no such world, or if the job was suspended.
    """
    earlier = max((sample.round for sample in samples if sample.at <= since), default=0)
    later = (s.at for s in samples if s.at > since and s.round > earlier and size in (None, s.size))
    until = next(later, None)
    if until is not None and not any(since - _PAUSE_SECONDS <= at <= until for at in suspended):
        to.append(until - since)


def _spread(values: Sequence[float]) -> str:
    """Return median, 99th percentile and maximum.

    The 99th percentile is the least value that 99 % do not exceed.
    """
    if not values:
        return "-"
    ordered = sorted(values)
    median = ordered[len(ordered) // 2]
    most = ordered[math.ceil(len(ordered) * 0.99) - 1]
    return f"{len(ordered)}: p50 {median:.1f} s, p99 {most:.1f} s, longest {ordered[-1]:.1f} s"
