"""Step reports on their way to the master: merged, so that any number of steps costs the same.

A merged report has the newest step and the sums of samples and seconds, so nothing is lost by merging, and while the
master is disconnected only one report a round is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob_api.limits import MAX_METRICS, MAX_STEP

MAX_ROUNDS = 16


@dataclass(frozen=True)
class StepReport:
    """Steps of one round that have not been reported to the master yet."""

    round: int
    step: int
    total: int = 0
    samples: float = 0.0
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    time: float = 0.0
    steps: int = 0
    compute_seconds: float = 0.0


def merge(older: StepReport, newer: StepReport) -> StepReport:
    """Return both reports of one round as one; of too many metrics, the newest names stay."""
    metrics = [(name, value) for name, value in older.metrics.items() if name not in newer.metrics]
    metrics += newer.metrics.items()
    return StepReport(
        round=newer.round,
        step=max(older.step, newer.step),
        total=newer.total or older.total,
        samples=older.samples + newer.samples,
        seconds=older.seconds + newer.seconds,
        metrics=dict(metrics[-MAX_METRICS:]),
        time=newer.time,
        steps=min(older.steps + newer.steps, MAX_STEP),
        compute_seconds=older.compute_seconds + newer.compute_seconds,
    )


class PendingReports:
    """Reports that wait for the master, one a round; the oldest rounds are dropped when there are too many."""

    def __init__(self) -> None:
        self._reports: dict[int, StepReport] = {}

    def add(self, report: StepReport) -> None:
        """Take a report."""
        older = self._reports.get(report.round)
        self._reports[report.round] = merge(older, report) if older else report
        while len(self._reports) > MAX_ROUNDS:
            del self._reports[next(iter(self._reports))]

    def take(self) -> StepReport | None:
        """Take out the report of the oldest round."""
        if not self._reports:
            return None
        return self._reports.pop(next(iter(self._reports)))

    def __len__(self) -> int:
        """Return the number of reports that wait."""
        return len(self._reports)
