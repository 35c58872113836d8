"""The training that remains, for a size that is chosen by a finish time."""

from __future__ import annotations

from elasticjob_master.core.autoscale.objective import Rest
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory
from elasticjob_master.core.progress import Progress


class TrainingRest:
    """Counts the samples that remain, from the reported steps.

    Attributes:
        latest: the latest count; None if the training does not report its length.
    """

    def __init__(self) -> None:
        self.latest: Rest | None = None
        self._step_samples = 0.0
        """The samples of a step when its speed was last known; 0 before."""

    def look(self, progress: Progress, memory: ScalingMemory, now: float, wall: float) -> None:
        """Count again; the times are those of `AutoScaler.tick`."""
        if not progress.total_steps:
            self.latest = None
            return
        rate = progress.samples_per_second(now)
        steps = progress.steps_per_second(now)
        if rate > 0 and steps > 0:
            self._step_samples = rate / steps
        if self._step_samples:
            samples = max(0, progress.total_steps - progress.step) * self._step_samples
            lost = 2 * memory.rates.rescale_seconds  # those that may still come
            self.latest = Rest(samples, wall, lost=lost, noise=memory.rates.noise)
