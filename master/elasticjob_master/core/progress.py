"""How far the training is and how fast it goes, from the members' step reports.

A report tells the seconds it stands for, so a burst of reports after a reconnection says as much as reports in time.
One report costs the same whatever the number of members; sums over members are made when somebody asks. The rate is
that of training: what a pause takes, such as an evaluation, a checkpoint or the compilation of the first step, is left
out of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from elasticjob_api.limits import MAX_METRIC_NAME_CHARACTERS, MAX_METRICS, MAX_STEP

_MEMORY_SECONDS = 5.0
_KEPT = 0.75
"""Of what was before, one report leaves at least so much: where steps take long, the last few still count."""
_SILENT_SECONDS = 15.0
_ODD_FACTOR, _ODD_SECONDS = 5.0, 5.0
_LEAST_SECONDS = 1e-3


@dataclass(frozen=True)
class Report:
    """One step report, as told."""

    round: int
    step: int
    total_steps: int = 0
    samples: float = 0.0
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    steps: int = 0
    compute_seconds: float = 0.0

    def validation_error(self) -> str | None:
        """Return what is wrong with it: field, value and bound; None when nothing is."""
        for name, value in (("step", self.step), ("total_steps", self.total_steps), ("steps", self.steps)):
            if not 0 <= value <= MAX_STEP:
                return f"{name} is {value}; it must be between 0 and {MAX_STEP}"
        amounts = (("samples", self.samples), ("seconds", self.seconds), ("compute_seconds", self.compute_seconds))
        for name, amount in amounts:
            if not (math.isfinite(amount) and 0.0 <= amount <= 1e15):
                return f"{name} is {amount}; it must be a number between 0 and 1e15"
        if len(self.metrics) > MAX_METRICS:
            return f"metrics has {len(self.metrics)} entries; at most {MAX_METRICS} are taken"
        long = next((name for name in self.metrics if not 0 < len(name) <= MAX_METRIC_NAME_CHARACTERS), None)
        if long is not None:
            return f"metrics has a name of {len(long)} characters; it must have 1 to {MAX_METRIC_NAME_CHARACTERS}"
        return None


@dataclass(slots=True)
class MemberSpeed:
    """Recent samples and steps of one member: sums that fade with the seconds they stand for.

    A report whose steps took far longer, or far less, than usual is odd. A single one is left out: it was a pause. Two
    in a row are the new pace, and so is the second report of all: the first one has the start-up in it.
    """

    step: int
    told_at: float
    samples: float = 0.0
    steps: float = 0.0
    seconds: float = 0.0
    interval: float = 0.0
    reports: int = 0
    odd: bool = False

    def add(self, report: Report, now: float) -> None:
        """Take a report."""
        steps = report.steps or max(0, report.step - self.step)
        elapsed = report.seconds or max(0.0, now - self.told_at)
        self.told_at, self.step = now, report.step
        # Without seconds of its own a report that comes in a burst takes no time: only all of the burst says something.
        if report.seconds and self._is_odd(elapsed, steps):
            if self.reports > 1 and not self.odd:
                self.odd = True
                return
            self.samples = self.steps = self.seconds = 0.0
        keep = max(math.exp(-elapsed / _MEMORY_SECONDS), _KEPT)
        self.samples = self.samples * keep + report.samples
        self.steps = self.steps * keep + steps
        self.seconds = self.seconds * keep + elapsed
        self.interval, self.odd = elapsed, False
        self.reports += 1

    def silent(self, now: float) -> bool:
        """Tell whether the member has stopped reporting."""
        return now - self.told_at > max(_SILENT_SECONDS, 5 * self.interval)

    def _is_odd(self, elapsed: float, steps: int) -> bool:
        if not steps or not self.steps:
            return False
        usual = self.seconds / self.steps * steps
        within = usual / _ODD_FACTOR <= elapsed <= usual * _ODD_FACTOR
        return not within and abs(elapsed - usual) > _ODD_SECONDS


class Progress:
    """The job's progress."""

    def __init__(self) -> None:
        self.round = 0
        self.step = 0
        self.total_steps = 0
        self.samples = 0.0
        self.metrics: dict[str, float] = {}
        self.reported_at: float | None = None
        self._speeds: dict[str, MemberSpeed] = {}

    def add_report(self, uid: str, report: Report, *, now: float, wall: float) -> bool:
        """Take a member's report, whose `problem` is None. One of an earlier round counts its samples only.

        Returns whether the member has finished a step of this round.

        Args:
            uid: the member.
            report: what it tells.
            now: the clock of the decisions.
            wall: seconds since the epoch, for people.
        """
        self.samples += report.samples
        if report.round < self.round:
            return False
        if report.round > self.round:
            # A new world may have gone back to a checkpoint.
            self.round, self.step, self._speeds = report.round, report.step, {}
        speed = self._speeds.get(uid)
        if speed is None:
            speed = self._speeds[uid] = MemberSpeed(step=max(0, report.step - 1), told_at=now - report.seconds)
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
        """A member's process is gone: it adds nothing to the rate any more."""
        self._speeds.pop(uid, None)

    def reporter_count(self) -> int:
        """Return how many members have reported in this round."""
        return len(self._speeds)

    def samples_per_second(self, now: float) -> float:
        """Return the throughput of all members together."""
        return sum(p.samples / p.seconds for p in self._telling(now))

    def steps_per_second(self, now: float) -> float:
        """Return how fast the job's step grows: the median of the members that tell steps."""
        return median([p.steps / p.seconds for p in self._telling(now) if p.steps] or [0.0])

    def eta_seconds(self, now: float) -> float | None:
        """Return the seconds to go at the present rate, or None when that is not known."""
        rate = self.steps_per_second(now)
        if not self.total_steps or rate <= 0:
            return None
        return max(0, self.total_steps - self.step) / rate

    def _telling(self, now: float) -> list[MemberSpeed]:
        return [p for p in self._speeds.values() if p.seconds > _LEAST_SECONDS and not p.silent(now)]


def format_rate(rate: float) -> str:
    """Return a rate for a printed column, such as `950/s` or `1.2k/s`."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= limit:
            return f"{rate / limit:.1f}{unit}/s"
    return f"{rate:.0f}/s" if rate >= 10 else f"{rate:.1f}/s"


def format_steps(step: int, total: int) -> str:
    """Return steps for a printed column, such as `123/480`, or `123` when the total is not known."""
    return f"{step}/{total}" if total else str(step)
