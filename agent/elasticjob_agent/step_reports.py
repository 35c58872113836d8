"""Step reports on their way to the master.

Merged, so that any number of steps and of processes costs the same. A merged report has the newest
step and the sums of samples and seconds, so nothing is lost by merging, and while the master is
disconnected only one report a round is kept. Several processes of one member finish the same steps
in the same time: their samples add up, but steps and seconds count once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from elasticjob_api.limits import MAX_METRICS, MAX_STEP

MAX_ROUNDS = 16
LEAD = 3


@dataclass(frozen=True)
class StepReport:
    """Steps of one round that a process has not reported to the master yet."""

    round: int
    step: int
    total: int = 0
    samples: float = 0.0
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    steps: int = 0
    compute_seconds: float = 0.0
    local_rank: int = 0


def merge(older: StepReport, newer: StepReport) -> StepReport:
    """Return two reports of one process in one round as one.

    Of too many metrics, the newest names stay.
    """
    metrics = [(name, value) for name, value in older.metrics.items() if name not in newer.metrics]
    metrics += newer.metrics.items()
    return StepReport(
        round=newer.round,
        step=max(older.step, newer.step),
        total=newer.total or older.total,
        samples=older.samples + newer.samples,
        seconds=older.seconds + newer.seconds,
        metrics=dict(metrics[-MAX_METRICS:]),
        steps=min(older.steps + newer.steps, MAX_STEP),
        compute_seconds=older.compute_seconds + newer.compute_seconds,
        local_rank=newer.local_rank,
    )


def combine(first: StepReport, other: StepReport) -> StepReport:
    """Return the reports of two processes of one round as one, with steps and seconds of the first.

    Of a metric that both have, the first one's value stays. The slower one's computing time counts,
    for as many steps as the first one has finished: they may have reported a different number.
    """
    slower = other.compute_seconds * first.steps / other.steps if other.steps else 0.0
    merged = merge(other, first)
    return replace(
        merged,
        seconds=first.seconds,
        steps=first.steps,
        compute_seconds=max(first.compute_seconds, slower),
    )


def after(counted: int, report: StepReport) -> StepReport:
    """Return a process's report with the steps after a step that has counted already, and their share of the time."""
    steps = max(0, report.step - counted)
    share = min(1.0, steps / report.steps) if report.steps else 1.0
    return replace(
        report,
        steps=steps,
        seconds=report.seconds * share,
        compute_seconds=report.compute_seconds * share,
    )


@dataclass
class _Round:
    """The reports of one round that wait.

    Attributes:
        leader: the local rank of the process whose steps count.
        reports: by local rank.
        behind: how often each process has reported since the leader did.
        counted: the newest step that has counted; None: none has.
        new_leader: whether another process led when it counted. The new one has finished some of the same steps, and
            they do not count again.
        ended: no process of the round runs any more.
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
        # Without the leader's only what adds up is known: the master measures the time by itself.
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
    """Reports that wait for the master, one a process and round.

    The oldest rounds are dropped when there are too many. In each round one process leads: its
    steps and seconds are those of the member, and with its reports those of the others are sent. It
    is the first one that reports, until another one has reported `LEAD` times without it.
    """

    def __init__(self) -> None:
        self._rounds: dict[int, _Round] = {}

    def add(self, report: StepReport) -> None:
        """Take a report."""
        self._rounds.setdefault(report.round, _Round(report.local_rank)).add(report)
        while len(self._rounds) > MAX_ROUNDS:
            del self._rounds[next(iter(self._rounds))]

    def processes_ended(self) -> None:
        """Let go what waits for the leader: it reports no more."""
        for each in self._rounds.values():
            each.ended = True

    def take(self) -> StepReport | None:
        """Take out the reports of the oldest round, as one."""
        return next((each.take() for each in self._rounds.values() if each.due), None)

    def __len__(self) -> int:
        """Return the number of rounds whose reports are due."""
        return sum(each.due for each in self._rounds.values())
