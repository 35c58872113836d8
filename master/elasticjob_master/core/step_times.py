"""How long one member's own steps take, from its step reports: what stragglers are found by."""

from __future__ import annotations

import math
from dataclasses import dataclass

from elasticjob_master.core.progress import Report

_MEMORY_SECONDS = 10.0
_KEPT = 0.75
_SILENT_SECONDS = 15.0


@dataclass(slots=True)
class StepTimes:
    """The time of one member's own steps in this round, and what is made of it.

    Attributes:
        own_work: the time is what the member works without waiting for others.
        change_pending_since: since when it has looked like the opposite of `straggler`.
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
        """Seconds of one step, lately; 0 when not known."""
        return self.seconds / self.steps if self.steps else 0.0

    def add(self, report: Report, steps: int, now: float) -> None:
        """Take a report that stands for so many steps. The first of a round has the start-up in it and is left out."""
        by_itself = report.compute_seconds > 0
        if report.round != self.round or by_itself != self.own_work:
            self.round, self.own_work = report.round, by_itself
            self.steps = self.seconds = 0.0
            return
        seconds = report.compute_seconds or report.seconds
        if not steps or not seconds:
            return
        keep = max(math.exp(-report.seconds / _MEMORY_SECONDS), _KEPT)
        self.steps = self.steps * keep + steps
        self.seconds = self.seconds * keep + seconds
        self.reported_at, self.interval = now, report.seconds

    def is_known(self, now: float) -> bool:
        """Return whether something is known of it that is not too old."""
        return self.steps > 0 and now - self.reported_at <= max(_SILENT_SECONDS, 5 * self.interval)
