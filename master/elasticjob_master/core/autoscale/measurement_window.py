"""Measuring the throughput of one size, window after window, and the cost of the rescale that led to it."""

from __future__ import annotations

from dataclasses import dataclass

from elasticjob_master.core.autoscale.scaling_memory import Measurement

_WARM_UP = 0.2
"""The share of the first window that is not measured, because of compilation and the first steps."""


@dataclass
class MeasurementWindow:
    """The measuring of the present size, from the world's first step until anything changes.

    Attributes:
        size: the size that is measured.
        round: the latest round that has reported.
        window_start: when the present window began; None: not yet.
        measured_from: when measuring began in it, after the warm-up.
        samples_from: the number of samples then.
        windows: how many windows of this size have ended.
        last_growth: when the number of samples last grew in this round, and the number then.
        previous_growth: the same for the round before.
    """

    size: int = 0
    round: int = 0
    window_start: float | None = None
    measured_from: float | None = None
    samples_from: float = 0.0
    windows: int = 0
    last_growth: tuple[float, float] | None = None
    previous_growth: tuple[float, float] | None = None

    def restart(self) -> None:
        """Begin again, as something has changed: the measurement so far would cover more than one size."""
        self.window_start = self.measured_from = None
        self.windows = 0

    def record_samples(self, *, world_round: int, samples: float, now: float) -> None:
        """Record the number of samples trained so far, whether or not the world is complete."""
        if world_round != self.round:
            self.round, self.previous_growth, self.last_growth = world_round, self.last_growth, None
            self.restart()
        elif self.last_growth is None or samples > self.last_growth[1]:
            self.last_growth = (now, samples)

    def observe(self, *, size: int, samples: float, cooldown: float, now: float) -> Measurement | None:
        """Go on measuring; return the measurement when a window of `cooldown` seconds has ended.

        Call it after `record_samples`, and only while the whole world trains. `samples` may count from any start.
        """
        if self.window_start is None or size != self.size:
            self.restart()
            self.size, self.window_start = size, now
        if self.measured_from is None and now - self.window_start >= _WARM_UP * cooldown:
            self.measured_from, self.samples_from = now, samples
        part = 1 if self.windows else 1 - _WARM_UP
        if self.measured_from is None or now - self.measured_from < part * cooldown:
            return None  # not compared with a fixed end, as `cooldown` may have changed meanwhile
        rate = (samples - self.samples_from) / (now - self.measured_from)
        rescale_seconds = self._rescale_seconds(rate, samples, now) if not self.windows else None
        self.windows += 1
        self.window_start = self.measured_from = now
        self.samples_from = samples
        return Measurement(rate, rescale_seconds)

    def _rescale_seconds(self, rate: float, samples: float, now: float) -> float | None:
        """Return the seconds since the previous round's last sample in which the job has not trained at this rate."""
        before, self.previous_growth = self.previous_growth, None
        if before is None or rate <= 0:
            return None
        return max(0.0, now - before[0] - (samples - before[1]) / rate)
