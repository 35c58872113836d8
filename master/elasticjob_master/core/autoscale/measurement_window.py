"""Measures one size, window after window: its throughput, and its members' CPU and memory.

Also the cost of the rescale before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import stdev

from elasticjob_master.core.autoscale.decision import MemberUsage, RoleUsage
from elasticjob_master.core.autoscale.job_scaling import RoleResources
from elasticjob_master.core.autoscale.measurements import Measurement
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS
from elasticjob_master.core.rendezvous.members import Member

Growth = tuple[float, float]
"""When the number of samples grew, and the number then."""


@dataclass
class MeasurementWindow:
    """Measures the present size, from the world's first step until anything changes.

    Samples are reported step by step, so a rate is measured from one report to another.

    Attributes:
        round: the latest round that has reported.
        window_start: when the present window began; None if none has.
        measured_from: the report with which measuring began after the warm-up.
        step_from: the step at `measured_from`.
        pieces: the rates of parts of the window; the present part began at `piece_from`.
        windows: the number of windows of this size that have ended.
        fastest: the highest rate of one of them.
        rises: the rate of the latest one was still that of a slow start.
        slow_windows: the number of windows for which the rate rose in the latest slow start.
        last_growth: the latest report of more samples in this round.
        previous_growth: the same for the round before.
    """

    size: int = 0
    round: int = 0
    samples: float = 0.0
    step: int = 0
    window_start: float | None = None
    measured_from: Growth | None = None
    step_from: int = 0
    pieces: list[float] = field(default_factory=list)
    piece_from: Growth | None = None
    windows: int = 0
    fastest: float = 0.0
    rises: bool = False
    slow_windows: int = 0
    last_growth: Growth | None = None
    previous_growth: Growth | None = None

    def restart(self) -> None:
        """Begin again: the measurement so far would cover the time before and after a change."""
        self.window_start = None
        self.measured_from = None
        self.windows = 0
        self.fastest = 0.0
        self.rises = False

    def record_samples(self, *, world_round: int, samples: float, step: int, now: float) -> None:
        """Record the progress, whether or not the world is complete."""
        if world_round != self.round:
            self.round = world_round
            self.previous_growth = self.last_growth
            self.last_growth = None
            self.restart()
        elif samples > self.samples:
            self.last_growth = (now, samples)
        self.samples = samples
        self.step = step

    def observe(
        self, *, size: int, cooldown: float, now: float, noise: float = THRESHOLDS.noticeable
    ) -> Measurement | None:
        """Measure on; return the measurement when a window of `cooldown` seconds has ended.

        Call it after `record_samples`, and only while the whole world trains. The `noise` is the
        relative standard deviation of a window's rate.
        """
        if self.window_start is None or size != self.size:
            self.restart()
            self.size = size
            self.window_start = now
        warm_up = 0.0 if self.windows else THRESHOLDS.warm_up * cooldown
        if self.measured_from is None and now - self.window_start >= warm_up:
            self._measure_from_now()
        if (rate := _rate(self.piece_from, self.last_growth, THRESHOLDS.piece * cooldown)) >= 0:
            self.pieces.append(rate)
            self.piece_from = self.last_growth
        if now - self.window_start < cooldown or (measured := self._measured(cooldown)) is None:
            return None
        self.rises = self._still_rises(measured.rate, noise)
        self.fastest = max(self.fastest, measured.rate)
        self.windows += 1
        self.window_start = now
        self.previous_growth = None
        self._measure_from_now()
        return replace(measured, part=1.0, rises=self.rises)

    def measured_so_far(self, *, cooldown: float) -> Measurement | None:
        """Return what the present window has measured, once that is enough to be of use.

        Members report each step one after the other, so a part of one may be missing.
        """
        measured = self._measured(cooldown)
        few_steps = self.step - self.step_from < THRESHOLDS.early_steps
        if measured is None or few_steps or measured.part < 2 * THRESHOLDS.piece:
            return None
        return measured

    def _still_rises(self, rate: float, noise: float) -> bool:
        """Return whether the window that has ended belongs to a slow start of the world.

        It is faster than all before it, or it is as early as those of the latest slow start. A rate
        that rises for longer is a trend, with which the search must live.
        """
        if 1 <= self.windows <= 2 * THRESHOLDS.least_windows:
            least = THRESHOLDS.noises * max(noise, THRESHOLDS.noticeable)
            if rate > self.fastest * (1 + least):
                self.slow_windows = self.windows
                return True
            if self.windows == 1:
                self.slow_windows = 0
        return self.windows < self.slow_windows

    def _measured(self, cooldown: float) -> Measurement | None:
        begin = self.measured_from
        last = self.last_growth
        rate = _rate(begin, last)
        if begin is None or last is None or rate <= 0:
            return None
        spread = 0.0
        if len(self.pieces) > 1:
            # Consecutive pieces are alike, so their mean varies more.
            error = stdev(self.pieces) / rate / math.sqrt(len(self.pieces))
            spread = THRESHOLDS.reserve * error
        rescale = None
        before = self.previous_growth
        if before is not None:
            # What was trained since the last sample of the round before took this time.
            rescale = max(0.0, last[0] - before[0] - (last[1] - before[1]) / rate)
        part = min(1.0, (last[0] - begin[0]) / cooldown)
        return Measurement(
            rate, rescale_seconds=rescale, part=part, spread=spread, window_seconds=cooldown
        )

    def _measure_from_now(self) -> None:
        self.measured_from = self.piece_from = self.last_growth
        self.step_from = self.step
        self.pieces = []


def _rate(begin: Growth | None, end: Growth | None, least: float = 1e-9) -> float:
    """Return the samples per second between two reports; -1 for less than `least` seconds."""
    if begin is None or end is None or end[0] - begin[0] < least:
        return -1.0
    return (end[1] - begin[1]) / (end[0] - begin[0])


@dataclass(slots=True)
class _Sums:
    """Sums and maxima of one member's samples."""

    samples: int = 0
    warm_samples: int = 0
    warm_cpu: float = 0.0
    cpu_peak: float = 0.0
    memory: int = 0
    near_limit: int = 0


class UsageSamples:
    """Samples of all members; those of a member are dropped when it is no longer sampled."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sums] = {}

    def clear(self) -> None:
        """Drop all samples."""
        self._sums = {}

    def add(
        self, members: Iterable[Member], roles: Mapping[str, RoleResources], *, warm: bool
    ) -> None:
        """Add a sample of each member of these roles; `warm`: the warm-up is over."""
        before = self._sums
        self._sums = {}
        for member in members:
            if member.identity.role not in roles:
                continue
            sums = self._sums[member.uid] = before.get(member.uid, _Sums())
            usage = member.usage
            limit = roles[member.identity.role].of_member(member).memory
            sums.samples += 1
            if warm:
                sums.warm_samples += 1
                sums.warm_cpu += usage.cpu_cores
            sums.cpu_peak = max(sums.cpu_peak, usage.cpu_cores)
            sums.memory = max(sums.memory, usage.memory_bytes)
            if limit is not None and usage.memory_bytes >= THRESHOLDS.nearly_used_up * limit:
                sums.near_limit += 1

    def by_role(
        self, members: Iterable[Member], roles: Mapping[str, RoleResources]
    ) -> dict[str, RoleUsage]:
        """Return what the members of these roles have used and may use, without unsampled ones."""
        uses: dict[str, list[MemberUsage]] = {role: [] for role in roles}
        for member in members:
            if (sums := self._sums.get(member.uid)) is not None and member.identity.role in roles:
                role = member.identity.role
                uses[role].append(_usage(member, sums, roles[role]))
        return {
            role: RoleUsage(
                tuple(uses[role]), each.most_memory, each.memory_bound, own_memory=each.own_memory
            )
            for role, each in roles.items()
        }


def _usage(member: Member, sums: _Sums, role: RoleResources) -> MemberUsage:
    resources = role.of_member(member)
    return MemberUsage(
        name=member.identity.pod_name,
        cpu=sums.warm_cpu / max(1, sums.warm_samples),
        cpu_peak=sums.cpu_peak,
        memory=sums.memory,
        near_limit=sums.near_limit / sums.samples,
        cpu_request=resources.cpu,
        memory_limit=resources.memory,
        node_cores=member.usage.node_cores,
    )
