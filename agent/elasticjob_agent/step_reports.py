"""Merges step reports on their way to the master, so that the cost does not grow with the steps.

A merged report has the newest step and the sums of samples and seconds, so merging loses nothing.
While the master is disconnected, one report for each round is kept. The processes of a member
finish the same steps in the same time: their samples add up, but steps and seconds count once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from elasticjob_api.limits import MAX_METRICS, MAX_STEP
from elasticjob_api.step_report import StepReport

MAX_ROUNDS = 16
LEAD = 3


def merge(older: StepReport, newer: StepReport) -> StepReport:
    """Return two reports of one process in one round as one, with the newest metrics."""
    metrics = [(name, value) for name, value in older.metrics.items() if name not in newer.metrics]
    metrics += newer.metrics.items()
    return StepReport(
        round=newer.round,
        step=max(older.step, newer.step),
        total_steps=newer.total_steps or older.total_steps,
        samples=older.samples + newer.samples,
        seconds=older.seconds + newer.seconds,
        metrics=dict(metrics[-MAX_METRICS:]),
        steps=min(older.steps + newer.steps, MAX_STEP),
        compute_seconds=older.compute_seconds + newer.compute_seconds,
        save_seconds=older.save_seconds + newer.save_seconds,
        saved_bytes=newer.saved_bytes or older.saved_bytes,
        local_rank=newer.local_rank,
    )


def combine(first: StepReport, other: StepReport) -> StepReport:
    """Return the reports of two processes of one round as one, with steps and seconds of the first.

    If both have a metric, the first one's value is kept. The computing time is that of the slower
    process, scaled to the steps of the first one.
    """
    slower = 0.0
    if other.steps:
        slower = other.compute_seconds * first.steps / other.steps
    merged = merge(other, first)
    return replace(
        merged,
        seconds=first.seconds,
        steps=first.steps,
        compute_seconds=max(first.compute_seconds, slower),
    )


def after(counted: int, report: StepReport) -> StepReport:
    """Return a report of the steps after `counted`, with their share of the time."""
    steps = max(0, report.step - counted)
    share = 1.0
    if report.steps:
        share = min(1.0, steps / report.steps)
    return replace(
        report,
        steps=steps,
        seconds=report.seconds * share,
        compute_seconds=report.compute_seconds * share,
    )


@dataclass
class _Round:
    """The waiting reports of one round.

    Attributes:
        leader: the local rank of the process whose steps count.
        reports: the reports by local rank.
        behind: the number of reports of each process since the leader's last one.
        counted: the newest step that has counted, or None.
        new_leader: another process led when that step counted. The new leader has finished some of
            the same steps, which must not count twice.
        ended: all processes of the round have exited.
    """

    leader: int
    reports: dict[int, StepReport] = field(default_factory=dict)
    behind: Counter[int] = field(default_factory=Counter)
    counted: int | None = None
    new_leader: bool = False
    ended: bool = False

    def add(self, report: StepReport) -> None:
        process = report.local_rank
        older = self.reports.get(process)
        self.reports[process] = merge(older, report) if older else report
        self.behind[process] += 1
        if process == self.leader or self.behind[process] >= LEAD:
            self.new_leader = self.new_leader or process != self.leader
            self.leader = process
            self.behind.clear()

    @property
    def due(self) -> bool:
        return self.leader in self.reports or (self.ended and bool(self.reports))

    def take(self) -> StepReport:
        reports = self.reports
        self.reports = {}
        newest = max(reports.values(), key=lambda report: report.step)
        # Without the leader's report only the sums are known; the master measures the time itself.
        nothing = StepReport(newest.round, newest.step, local_rank=self.leader)
        combined = self._count(reports.pop(self.leader)) if self.leader in reports else nothing
        for _, other in sorted(reports.items()):
            combined = combine(combined, other)
        return combined

    def _count(self, report: StepReport) -> StepReport:
        if self.new_leader and self.counted is not None:
            counted = self.counted
            report = after(self.counted, report)
            if report.step < counted:
                return report
        self.counted = report.step
        self.new_leader = False
        return report


class PendingReports:
    """Reports that wait for the master, one for each process and round.

    If there are too many rounds, the oldest are dropped. In each round one process leads: its steps
    and seconds are those of the member, and its reports take the others' with them. The first one
    that reports leads, until another one has reported `LEAD` times since the leader's last report.
    """

    def __init__(self) -> None:
        self._rounds: dict[int, _Round] = {}

    def add(self, report: StepReport) -> None:
        """Add a report."""
        self._rounds.setdefault(report.round, _Round(report.local_rank)).add(report)
        while len(self._rounds) > MAX_ROUNDS:
            del self._rounds[next(iter(self._rounds))]

    def processes_ended(self) -> None:
        """Make all reports due: their leaders send no more."""
        for each in self._rounds.values():
            each.ended = True

    def take(self) -> StepReport | None:
        """Remove the due reports of the oldest round, and return them as one."""
        return next((each.take() for each in self._rounds.values() if each.due), None)

    def __len__(self) -> int:
        """Return the number of rounds whose reports are due."""
        return sum(each.due for each in self._rounds.values())
