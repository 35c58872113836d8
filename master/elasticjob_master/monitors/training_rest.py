"""What is left of the training, for a size that is chosen by a finish time."""

from __future__ import annotations

from elasticjob_master.core.autoscale.objective import Rest
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory
from elasticjob_master.monitors.view import ProgressView

_RESCALES = 2
"""As many are still to come before the end, for all that is known."""


class TrainingRest:
    """Counts the samples that are left, from the reported steps.

    Attributes:
        latest: as of the latest look; None: the training does not say how long it is.
    """

    def __init__(self) -> None:
        self.latest: Rest | None = None
        self._step_samples = 0.0
        """Samples of a step; 0: not known yet. While no speed is known, a step has as many as it
        had.
        """

    def look(self, progress: ProgressView, memory: ScalingMemory, now: float, wall: float) -> None:
        """Look at the progress; the times are those of `AutoScaler.tick`."""
        if not progress.total_steps:
            self.latest = None
            return
        rate = progress.samples_per_second(now)
        steps = progress.steps_per_second(now)
        if rate > 0 and steps > 0:
            self._step_samples = rate / steps
        if self._step_samples:
            samples = max(0, progress.total_steps - progress.step) * self._step_samples
            self.latest = Rest(samples, wall, lost=_RESCALES * memory.cost, noise=memory.noise)
