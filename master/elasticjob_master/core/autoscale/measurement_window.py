"""Measuring the throughput of one size, window after window, and the cost of the rescale that led to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import stdev

from elasticjob_master.core.autoscale.scaling_memory import Measurement

_WARM_UP = 0.2
"""The share of the first window that is not measured, because of compilation and the first steps.
"""
_LEAST_PART = 0.15
_LEAST_STEPS = 10
"""What is measured of a window so far says something when it is so much of it, and so many steps:
members report each step one after the other, so a part of one may be missing.
"""
_PIECE = 1 / 15
"""The least part of a window whose own rate is looked at, to see how much the rate varies."""
_LEAST_PIECES = 4
_RELATED = 1.5
"""Consecutive pieces are alike, so their mean varies more than that of independent ones, about by
this factor.
"""


@dataclass
class MeasurementWindow:
    """The measuring of the present size, from the world's first step until anything changes.

    Samples are reported step by step, so a rate is measured from one report to another, not from
    tick to tick.

    Attributes:
        size: the size that is measured.
        round: the latest round that has reported.
        samples: the number of samples at the latest look.
        window_start: when the present window began; None: not yet.
        measured_from: the report from which on the window is measured, after the warm-up: when, and the samples then.
        step: the latest step.
        step_from: the step then.
        pieces: the rates of the parts of the window; the last one began at `piece_from`.
        windows: how many windows of this size have ended.
        last_growth: when the number of samples last grew in this round, and the number then.
        previous_growth: the same for the round before.
    """

    size: int = 0
    round: int = 0
    samples: float = 0.0
    window_start: float | None = None
    measured_from: tuple[float, float] | None = None
    step: int = 0
    step_from: int = 0
    pieces: list[float] = field(default_factory=list)
    piece_from: tuple[float, float] | None = None
    windows: int = 0
    last_growth: tuple[float, float] | None = None
    previous_growth: tuple[float, float] | None = None

    def restart(self) -> None:
        """Begin again, as something has changed.

        The measurement so far would cover more than one size.
        """
        self.window_start = self.measured_from = None
        self.windows = 0

    def record_samples(self, *, world_round: int, samples: float, step: int, now: float) -> None:
        """Record the samples trained so far and the latest step, whether or not the world is complete."""
        if world_round != self.round:
            self.round = world_round
            self.previous_growth = self.last_growth
            self.last_growth = None
            self.restart()
        elif samples > self.samples:
            self.last_growth = (now, samples)
        self.samples = samples
        self.step = step

    def observe(self, *, size: int, cooldown: float, now: float) -> Measurement | None:
        """Go on measuring; return the measurement when a window of `cooldown` seconds has ended.

        Call it after `record_samples`, and only while the whole world trains.
        """
        if self.window_start is None or size != self.size:
            self.restart()
            self.size = size
            self.window_start = now
        warm_up = 0.0 if self.windows else _WARM_UP * cooldown
        if self.measured_from is None and now - self.window_start >= warm_up:
            self._measure_from(self.last_growth)
        self._add_piece(cooldown)
        if now - self.window_start < cooldown:
            return None
        measured = self.measured_so_far(cooldown=cooldown, at_least=0.0)
        if measured is None:
            return None
        self.windows += 1
        self.window_start = now
        self._measure_from(self.last_growth)
        self.previous_growth = None
        return replace(measured, part=1.0)

    def measured_so_far(
        self, *, cooldown: float, at_least: float = _LEAST_PART
    ) -> Measurement | None:
        """Return what the present window has measured until now.

        None when that says nothing yet.
        """
        if self.measured_from is None or self.last_growth is None:
            return None
        seconds, samples = (
            end - begin for end, begin in zip(self.last_growth, self.measured_from, strict=True)
        )
        if samples <= 0 or seconds <= 0 or seconds < at_least * cooldown:
            return None
        if at_least and self.step - self.step_from < _LEAST_STEPS:
            return None
        rate = samples / seconds
        part = min(1.0, seconds / cooldown)
        spread = 0.0
        if len(self.pieces) >= _LEAST_PIECES:
            spread = _RELATED * stdev(self.pieces) / rate / math.sqrt(len(self.pieces))
        rescale_seconds = None if self.windows else self._rescale_seconds(rate)
        return Measurement(rate, rescale_seconds, part=part, spread=spread, first=not self.windows)

    def _measure_from(self, growth: tuple[float, float] | None) -> None:
        self.measured_from = self.piece_from = growth
        self.step_from = self.step
        self.pieces = []

    def _add_piece(self, cooldown: float) -> None:
        """Take the rate since `piece_from` among the pieces, if that was long enough ago."""
        begin = self.piece_from
        end = self.last_growth
        if begin is not None and end is not None and end[0] - begin[0] >= _PIECE * cooldown:
            self.pieces.append((end[1] - begin[1]) / (end[0] - begin[0]))
            self.piece_from = end

    def _rescale_seconds(self, rate: float) -> float | None:
        """Return the seconds since the previous round's last sample in which the job has not trained at this rate."""
        before = self.previous_growth
        last = self.last_growth
        if before is None or last is None:
            return None
        return max(0.0, last[0] - before[0] - (last[1] - before[1]) / rate)
