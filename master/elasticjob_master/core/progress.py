"""The training's step and speed, from the members' step reports.

A report contains the seconds that it stands for, so a burst of reports after a reconnection counts
like reports that arrive in time. Adding a report takes constant time; sums over all members are
computed on request. The speed is that of training: pauses for an evaluation, a checkpoint or the
compilation of the first step are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

import msgspec
from elasticjob_api.limits import MAX_METRIC_NAME_CHARACTERS, MAX_METRICS, MAX_STEP

_DECAY_SECONDS = 5.0
_KEPT = 0.75
"""The least part of the older sums that a report keeps, so that several reports count even if steps
take long.
"""
_SILENT_SECONDS = 15.0
_OUTLIER_FACTOR = 5.0
_OUTLIER_SECONDS = 5.0
_LEAST_SECONDS = 1e-3


@dataclass(frozen=True)
class Report:
    """One step report.

    Attributes:
        step: the number of the last step, counted from the beginning of the training.
        total_steps: the number of steps of the whole training; 0: not known.
        samples: trained since the last report.
        seconds: passed since the last report; 0: not known.
        steps: finished since the last report; 0: not known.
        compute_seconds: the part of `seconds` in which the member did not wait for others; 0: not known.
    """

    round: int
    step: int
    total_steps: int = 0
    samples: float = 0.0
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    steps: int = 0
    compute_seconds: float = 0.0

    def validation_error(self) -> str | None:
        """Return an error that names field, value and bound; None: the report is valid."""
        for name, value in (
            ("step", self.step),
            ("total_steps", self.total_steps),
            ("steps", self.steps),
        ):
            if not 0 <= value <= MAX_STEP:
                return f"{name} is {value}; it must be between 0 and {MAX_STEP}"
        amounts = (
            ("samples", self.samples),
            ("seconds", self.seconds),
            ("compute_seconds", self.compute_seconds),
        )
        for name, amount in amounts:
            if not (math.isfinite(amount) and 0.0 <= amount <= 1e15):
                return f"{name} is {amount}; it must be a number between 0 and 1e15"
        if len(self.metrics) > MAX_METRICS:
            return f"metrics has {len(self.metrics)} entries; at most {MAX_METRICS} are taken"
        long = next(
            (name for name in self.metrics if not 0 < len(name) <= MAX_METRIC_NAME_CHARACTERS), None
        )
        if long is not None:
            return f"metrics has a name of {len(long)} characters; it must have 1 to {MAX_METRIC_NAME_CHARACTERS}"
        return None


@dataclass(slots=True)
class MemberSpeed:
    """Recent samples and steps of one member: sums that decay with time.

    A report whose steps took far more or far less time than usual is an outlier. A single outlier
    is skipped, because it was a pause. After two in a row, or in the second report of all, the sums
    begin again: the speed has changed, or the first report contained the start-up.
    """

    step: int
    received_at: float
    samples: float = 0.0
    steps: float = 0.0
    seconds: float = 0.0
    interval: float = 0.0
    reports: int = 0
    outlier: bool = False

    def add(self, report: Report, now: float) -> None:
        """Add a report."""
        steps = report.steps or max(0, report.step - self.step)
        elapsed = report.seconds or max(0.0, now - self.received_at)
        self.received_at = now
        self.step = report.step
        # Reports without `seconds` that arrive in a burst seem to take no time, so they are never
        # outliers.
        if report.seconds and self._is_outlier(elapsed, steps):
            if self.reports > 1 and not self.outlier:
                self.outlier = True
                return
            self.samples = self.steps = self.seconds = 0.0
        keep = max(math.exp(-elapsed / _DECAY_SECONDS), _KEPT)
        self.samples = self.samples * keep + report.samples
        self.steps = self.steps * keep + steps
        self.seconds = self.seconds * keep + elapsed
        self.interval = elapsed
        self.outlier = False
        self.reports += 1

    def silent(self, now: float) -> bool:
        """Return whether the member has stopped reporting."""
        return now - self.received_at > max(_SILENT_SECONDS, 5 * self.interval)

    def _is_outlier(self, elapsed: float, steps: int) -> bool:
        if not steps or not self.steps:
            return False
        usual = self.seconds / self.steps * steps
        within = usual / _OUTLIER_FACTOR <= elapsed <= usual * _OUTLIER_FACTOR
        return not within and abs(elapsed - usual) > _OUTLIER_SECONDS


class StoredProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """The training's progress."""

    round: int = 0
    step: int = 0
    total_steps: int = 0
    samples: float = 0.0
    metrics: dict[str, float] = {}
    reported_at: float | None = None


class Progress:
    """The job's progress.

    Attributes:
        round: the latest round in which a step was reported.
        step: the highest step reported in this round.
        samples: trained so far, over all rounds.
        metrics: the last value of each metric.
        reported_at: when the last report of the present round arrived, in seconds since the epoch.
    """

    def __init__(self) -> None:
        self.round = 0
        self.step = 0
        self.total_steps = 0
        self.samples = 0.0
        self.metrics: dict[str, float] = {}
        self.reported_at: float | None = None
        self._speeds: dict[str, MemberSpeed] = {}

    def stored(self) -> StoredProgress:
        """Return what is to be stored."""
        return StoredProgress(
            round=self.round,
            step=self.step,
            total_steps=self.total_steps,
            samples=self.samples,
            metrics=dict(self.metrics),
            reported_at=self.reported_at,
        )

    def restore(self, stored: StoredProgress) -> None:
        """Go on with what was stored; how fast the members are is measured anew."""
        self.round = stored.round
        self.step = stored.step
        self.total_steps = stored.total_steps
        self.samples = stored.samples
        self.reported_at = stored.reported_at
        self.metrics.update(stored.metrics)

    def add_report(self, uid: str, report: Report, *, now: float, wall: float) -> bool:
        """Add a member's valid report; of a report of an earlier round only the samples count.

        Returns whether the member has finished a step of this round.

        Args:
            uid: of the member.
            report: its report.
            now: the time of the monotonic clock.
            wall: the time in seconds since the epoch.
        """
        self.samples += report.samples
        if report.round < self.round:
            return False
        if report.round > self.round:
            # A new world may have gone back to a checkpoint.
            self.round = report.round
            self.step = report.step
            self._speeds = {}
        speed = self._speeds.get(uid)
        if speed is None:
            speed = self._speeds[uid] = MemberSpeed(
                step=max(0, report.step - 1), received_at=now - report.seconds
            )
        stepped = report.step != speed.step
        speed.add(report, now)
        self.step = max(self.step, report.step)
        self.total_steps = report.total_steps or self.total_steps
        self.reported_at = wall
        for name, value in report.metrics.items():
            if math.isfinite(value) and (name in self.metrics or len(self.metrics) < MAX_METRICS):
                self.metrics[name] = value
        return stepped

    def remove_member(self, uid: str) -> None:
        """Remove a member whose process has ended from the speed."""
        self._speeds.pop(uid, None)

    def reporter_count(self) -> int:
        """Return the number of members that have reported in this round."""
        return len(self._speeds)

    def samples_per_second(self, now: float) -> float:
        """Return the throughput of all members."""
        return sum(s.samples / s.seconds for s in self._reporting(now))

    def steps_per_second(self, now: float) -> float:
        """Return how fast the step grows: the median over the members that report steps."""
        return _steps_per_second(self._reporting(now))

    def eta_seconds(self, now: float) -> float | None:
        """Return the remaining seconds at the present rate, or None when they are not known.

        A member's first report in a world tells nothing of it: it contains the start-up.
        """
        rate = _steps_per_second([s for s in self._reporting(now) if s.reports > 1])
        if not self.total_steps or rate <= 0:
            return None
        return max(0, self.total_steps - self.step) / rate

    def _reporting(self, now: float) -> list[MemberSpeed]:
        return [
            s for s in self._speeds.values() if s.seconds > _LEAST_SECONDS and not s.silent(now)
        ]


def _steps_per_second(speeds: Iterable[MemberSpeed]) -> float:
    return median([s.steps / s.seconds for s in speeds if s.steps] or [0.0])


def format_rate(rate: float) -> str:
    """Return a rate as text for a table, such as `950/s` or `1.2k/s`."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= limit:
            return f"{rate / limit:.1f}{unit}/s"
    return f"{rate:.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


def format_eta(seconds: int) -> str:
    """Return the time to go for people: 45s, 12m, 3h05m, 2d04h."""
    minutes = seconds // 60
    hours = seconds // 3600
    days = seconds // 86_400
    if days:
        return f"{days}d{hours % 24:02}h"
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    return f"{minutes}m" if minutes else f"{seconds}s"


def format_steps(step: int, total: int) -> str:
    """Return steps as text for a table, such as `123/480`, or `123` when the total is not known."""
    return f"{step}/{total}" if total else str(step)
