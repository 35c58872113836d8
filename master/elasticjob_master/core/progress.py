"""The training's step and speed, from the members' step reports.

Each report contains the seconds that it covers. So a burst of reports after a reconnection counts
like reports that arrive in time. The speed excludes pauses for an evaluation, a checkpoint or the
compilation of the first step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import msgspec
from elasticjob_api.limits import MAX_METRICS
from elasticjob_api.step_report import StepReport

_DECAY_SECONDS = 5.0
_KEPT = 0.75
"""The smallest share of the older sums that remains after a report, so that several reports count
even if steps take long.
"""
_SILENT_SECONDS = 15.0
_OUTLIER_FACTOR = 5.0
_OUTLIER_SECONDS = 5.0
_LEAST_SECONDS = 1e-3


@dataclass(slots=True)
class MemberSpeed:
    """Recent samples and steps of one member: sums that decay with time.

    A report whose steps took far more or far less time than usual is an outlier. A single outlier
    is skipped: it contains a pause. Two consecutive outliers reset the sums: the speed has changed.
    So does an outlier in the second report: the first one contained the start-up.

    Attributes:
        loss: the metric `loss` that it reported last; None if it has reported none.
    """

    step: int
    received_at: float
    samples: float = 0.0
    steps: float = 0.0
    seconds: float = 0.0
    interval: float = 0.0
    reports: int = 0
    outlier: bool = False
    loss: float | None = None

    def add(self, report: StepReport, now: float) -> None:
        """Add a report."""
        steps = report.steps or max(0, report.step - self.step)
        elapsed = report.seconds or max(0.0, now - self.received_at)
        self.received_at = now
        self.step = report.step
        # Reports without `seconds` are never outliers: in a burst they seem to take no time.
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
    """The stored progress of the training."""

    round: int = 0
    step: int = 0
    total_steps: int = 0
    samples: float = 0.0
    metrics: dict[str, float] = {}
    reported_at: float | None = None
    save_seconds: float = 0.0
    saved_bytes: int = 0


class Progress:
    """The job's progress.

    Attributes:
        round: the latest round in which a step was reported.
        step: the highest step reported in this round.
        samples: samples trained so far, in all rounds.
        metrics: the last value of each metric.
        save_seconds: what writing checkpoints to the storage has taken, in all rounds.
        saved_bytes: the size of a checkpoint there; 0: not known.
        reported_at: when the last report of the present round arrived, in seconds since the epoch.
        unmeasured: whether it was restored, and no member has reported since: its throughput is not
            known, and not 0.
    """

    def __init__(self) -> None:
        self.round = 0
        self.step = 0
        self.total_steps = 0
        self.samples = 0.0
        self.metrics: dict[str, float] = {}
        self.reported_at: float | None = None
        self.save_seconds = 0.0
        self.saved_bytes = 0
        self.unmeasured = False
        self._speeds: dict[str, MemberSpeed] = {}

    def stored(self) -> StoredProgress:
        """Return the progress to store."""
        return msgspec.convert(self, StoredProgress, from_attributes=True)

    def restore(self, stored: StoredProgress) -> None:
        """Continue with the stored progress. The members' speeds are measured again."""
        self.round = stored.round
        self.step = stored.step
        self.total_steps = stored.total_steps
        self.samples = stored.samples
        self.reported_at = stored.reported_at
        self.save_seconds = stored.save_seconds
        self.saved_bytes = stored.saved_bytes
        self.metrics.update(stored.metrics)
        self.unmeasured = stored.round > 0

    def add_report(self, uid: str, report: StepReport, *, now: float, wall: float) -> bool:
        """Add a member's valid report; return whether it has finished a step of this round.

        If the report belongs to an earlier round, only its samples count.
        """
        self.unmeasured = False
        self.samples += report.samples
        self.save_seconds += report.save_seconds
        self.saved_bytes = report.saved_bytes or self.saved_bytes
        if report.round < self.round:
            return False
        if report.round > self.round:
            # A new world may continue from an earlier step, that of a checkpoint.
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
        loss = report.metrics.get("loss")
        speed.loss = speed.loss if loss is None else loss
        self.step = max(self.step, report.step)
        self.total_steps = report.total_steps or self.total_steps
        self.reported_at = wall
        for name, value in report.metrics.items():
            if math.isfinite(value) and (name in self.metrics or len(self.metrics) < MAX_METRICS):
                self.metrics[name] = value
        return stepped

    def remove_member(self, uid: str) -> None:
        """Exclude a member whose process has ended from the speed."""
        self._speeds.pop(uid, None)

    def loss(self, uid: str) -> float | None:
        """Return the loss that a member has reported last in this round, if any."""
        speed = self._speeds.get(uid)
        return None if speed is None else speed.loss

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
        """Return the remaining seconds at the present rate; None if they are not known.

        A member's first report in a world does not count, because it contains the start-up.
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
    if rate >= 10:
        return f"{rate:.0f}/s"
    return f"{rate:.1f}/s"


def format_eta(seconds: int) -> str:
    """Return the remaining time as text: 45s, 12m, 3h05m, 2d04h."""
    minutes = seconds // 60
    hours = seconds // 3600
    days = seconds // 86_400
    if days:
        return f"{days}d{hours % 24:02}h"
    if hours:
        return f"{hours}h{minutes % 60:02}m"
    if minutes:
        return f"{minutes}m"
    return f"{seconds}s"


def format_steps(step: int, total: int) -> str:
    """Return steps as text for a table, such as `123/480`, or `123` if the total is not known."""
    if not total:
        return str(step)
    return f"{step}/{total}"
