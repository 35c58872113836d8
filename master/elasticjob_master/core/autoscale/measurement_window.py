"""Measures the throughput of one size, window after window, and the cost of the rescale before."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import stdev

from elasticjob_master.core.autoscale.measurements import Measurement
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


@dataclass
class MeasurementWindow:
    """Measures the present size, from the world's first step until anything changes.

    Samples are reported step by step, so a rate is measured from one report to another.

    Attributes:
        size: the size that is measured.
        round: the latest round that has reported.
        samples: the latest number of samples.
        window_start: when the present window began; None if none has.
        measured_from: time and samples of the report with which measuring began after the warm-up.
        step: the latest step.
        step_from: the step at `measured_from`.
        pieces: the rates of parts of the window; the present part began at `piece_from`.
        windows: the number of windows of this size that have ended.
        fastest: the highest rate of one of them.
        rises: the rate of the latest one was still that of a slow start.
        slow_windows: the number of windows for which the rate rose in the latest slow start.
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
    fastest: float = 0.0
    rises: bool = False
    slow_windows: int = 0
    last_growth: tuple[float, float] | None = None
    previous_growth: tuple[float, float] | None = None

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
        self, *, size: int, cooldown: float, now: float, noise: float = THRESHOLDS.usual_noise
    ) -> Measurement | None:
        """Continue to measure; return the measurement when a window of `cooldown` seconds has ended.

        Call it after `record_samples`, and only while the whole world trains. The `noise` is the
        relative standard deviation of a window's rate.
        """
        if self.window_start is None or size != self.size:
            self.restart()
            self.size = size
            self.window_start = now
        warm_up = 0.0 if self.windows else THRESHOLDS.warm_up * cooldown
        if self.measured_from is None and now - self.window_start >= warm_up:
            self._measure_from(self.last_growth)
        self._add_piece(cooldown)
        if now - self.window_start < cooldown:
            return None
        measured = self._measured(cooldown)
        if measured is None:
            return None
        self.rises = self._still_rises(measured.rate, noise)
        self.fastest = max(self.fastest, measured.rate)
        self.windows += 1
        self.window_start = now
        self._measure_from(self.last_growth)
        self.previous_growth = None
        return replace(measured, part=1.0, rises=self.rises)

    def measured_so_far(self, *, cooldown: float) -> Measurement | None:
        """Return what the present window has measured, once that is enough to be of use.

        Members report each step one after the other, so a part of one may be missing.
        """
        if self.step - self.step_from < THRESHOLDS.early_steps:
            return None
        measured = self._measured(cooldown)
        if measured is None or measured.part < THRESHOLDS.early_part:
            return None
        return measured

    def _still_rises(self, rate: float, noise: float) -> bool:
        """Return whether the window that has ended belongs to a slow start of the world.

        It is faster than all before it, or it is as early as those of the latest slow start.
        """
        if self.windows > THRESHOLDS.slow_windows:
            return False
        if self.windows:
            least = max(THRESHOLDS.rise, THRESHOLDS.rise_noises * noise)
            if rate > self.fastest * (1 + least):
                self.slow_windows = self.windows
                return True
            if self.windows == 1:
                self.slow_windows = 0
        return self.windows < self.slow_windows

    def _measured(self, cooldown: float) -> Measurement | None:
        if self.measured_from is None or self.last_growth is None:
            return None
        seconds = self.last_growth[0] - self.measured_from[0]
        samples = self.last_growth[1] - self.measured_from[1]
        if samples <= 0 or seconds <= 0:
            return None
        rate = samples / seconds
        spread = 0.0
        if len(self.pieces) >= THRESHOLDS.spread_pieces:
            error = stdev(self.pieces) / rate / math.sqrt(len(self.pieces))
            spread = THRESHOLDS.related_pieces * error
        return Measurement(
            rate,
            rescale_seconds=self._rescale_seconds(rate),
            part=min(1.0, seconds / cooldown),
            spread=spread,
        )

    def _measure_from(self, growth: tuple[float, float] | None) -> None:
        self.measured_from = growth
        self.step_from = self.step
        self.piece_from = growth
        self.pieces = []

    def _add_piece(self, cooldown: float) -> None:
        """Add the rate since `piece_from` to the pieces, if enough time has passed."""
        begin = self.piece_from
        end = self.last_growth
        if begin is None or end is None or end[0] - begin[0] < THRESHOLDS.piece * cooldown:
            return
        self.pieces.append((end[1] - begin[1]) / (end[0] - begin[0]))
        self.piece_from = end

    def _rescale_seconds(self, rate: float) -> float | None:
        """Return the seconds since the previous round's last sample without training at this rate."""
        before = self.previous_growth
        last = self.last_growth
        if self.windows or before is None or last is None:
            return None
        return max(0.0, last[0] - before[0] - (last[1] - before[1]) / rate)
