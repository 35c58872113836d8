"""One size being held and measured, window after window; and what it has cost to get there."""

from __future__ import annotations

from dataclasses import dataclass

from elasticjob_master.core.autoscale.scaling_memory import Measurement

_WARM_UP = 0.2
"""The part of the first window that is not measured: compilation and first steps."""


@dataclass
class MeasurementWindow:
    """From the first step of a world on, until anything changes.

    Attributes:
        grew: when the samples of the latest round last grew, and what they were then.
        before: the same of the round before it.
    """

    size: int = 0
    round: int = 0
    held_from: float | None = None
    measured_from: float | None = None
    samples_from: float = 0.0
    windows: int = 0
    grew: tuple[float, float] | None = None
    before: tuple[float, float] | None = None

    def restart(self) -> None:
        """Something changed: what was measured so far is no longer one size."""
        self.held_from = self.measured_from = None
        self.windows = 0

    def record_samples(self, *, world_round: int, samples: float, now: float) -> None:
        """Take note of the samples trained so far, whether or not the world is complete."""
        if world_round != self.round:
            self.round, self.before, self.grew = world_round, self.grew, None
            self.restart()
        elif self.grew is None or samples > self.grew[1]:
            self.grew = (now, samples)

    def observe(self, *, size: int, samples: float, cooldown: float, now: float) -> Measurement | None:
        """Go on measuring; return the rate when a window is over, which lasts for `cooldown`.

        Call it only while the whole world trains, after `note`; `samples` counts from any beginning.
        """
        if self.held_from is None or size != self.size:
            self.restart()
            self.size, self.held_from = size, now
        if self.measured_from is None and now - self.held_from >= _WARM_UP * cooldown:
            self.measured_from, self.samples_from = now, samples
        part = 1 if self.windows else 1 - _WARM_UP
        if self.measured_from is None or now - self.measured_from < part * cooldown:
            return None  # counted from there, as `cooldown` may have been a longer one until now
        rate = (samples - self.samples_from) / (now - self.measured_from)
        lost = self._lost(rate, samples, now) if not self.windows else None
        self.windows += 1
        self.held_from = self.measured_from = now
        self.samples_from = samples
        return Measurement(rate, lost)

    def _lost(self, rate: float, samples: float, now: float) -> float | None:
        """Return the seconds since the last sample of the round before in which this rate was not reached."""
        before, self.before = self.before, None
        if before is None or rate <= 0:
            return None
        return max(0.0, now - before[0] - (samples - before[1]) / rate)
