"""Measures how long a member's steps take. `stragglers` compares these times."""

from __future__ import annotations

import math
from dataclasses import dataclass

from elasticjob_api.step_report import StepReport

_DECAY_SECONDS = 10.0
_KEPT = 0.75
_SILENT_SECONDS = 15.0


@dataclass(slots=True)
class StepTimes:
    """The step times of one member in this round: sums that decay with time.

    Attributes:
        own_work: whether this is the time of the member's own work, without waiting for others.
        interval: the seconds that the last report covers.
        straggler: the member is marked as a straggler.
        change_pending_since: since when its times have contradicted the mark.
    """

    round: int = 0
    steps: float = 0.0
    seconds: float = 0.0
    own_work: bool = False
    reported_at: float = 0.0
    interval: float = 0.0
    straggler: bool = False
    change_pending_since: float | None = None

    @property
    def step_seconds(self) -> float:
        """Recent seconds per step; 0 when not known."""
        return self.seconds / self.steps if self.steps else 0.0

    def add(self, report: StepReport, steps: int, now: float) -> None:
        """Add a report, except the first one of a round, which contains the start-up."""
        own_work = report.compute_seconds > 0
        if report.round != self.round or own_work != self.own_work:
            self.round = report.round
            self.own_work = own_work
            self.steps = self.seconds = 0.0
            return
        seconds = report.compute_seconds or report.seconds
        if not steps or not seconds:
            return
        keep = max(math.exp(-report.seconds / _DECAY_SECONDS), _KEPT)
        self.steps = self.steps * keep + steps
        self.seconds = self.seconds * keep + seconds
        self.reported_at = now
        self.interval = report.seconds

    def is_known(self, now: float) -> bool:
        """Return whether the member has reported its times recently."""
        return self.steps > 0 and now - self.reported_at <= max(_SILENT_SECONDS, 5 * self.interval)
