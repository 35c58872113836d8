"""What the choice of a size goes by, and its description."""

from __future__ import annotations

from dataclasses import dataclass

from elasticjob_master.core.autoscale.decision import Bounds, ScalingInputs
from elasticjob_master.core.autoscale.objective_text import rate_text
from elasticjob_master.core.autoscale.scaling_memory import (
    MeasuredRate,
    ScalingMemory,
    SizeSearch,
)
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


@dataclass(frozen=True)
class Situation:
    """The facts that the choice of a size uses.

    Attributes:
        memory: the state, with a measurement of the present size.
        now: the job's present state.
        bounds: the sizes allowed, which may be narrower than the job's own for a while.
    """

    memory: ScalingMemory
    now: ScalingInputs
    bounds: Bounds

    @property
    def size(self) -> int:
        """The present size."""
        return self.now.size

    @property
    def search(self) -> SizeSearch:
        """The state of the search."""
        return self.memory.search

    @property
    def known(self) -> dict[int, MeasuredRate]:
        """The sizes at which the job trains, with their rates."""
        return {n: rate for n, rate in self.memory.rates.by_size.items() if rate.mean > 0}

    @property
    def waits_for_more(self) -> bool:
        """True if only a temporary limit keeps the job from being larger."""
        return self.bounds.limit_is_temporary and self.size >= self.bounds.maximum

    @property
    def is_exact(self) -> bool:
        """True if the present size is measured as long as a decision may need."""
        needed = (self.memory.rates.noise / THRESHOLDS.exact) ** 2
        windows = min(max(THRESHOLDS.least_windows, needed), THRESHOLDS.most_windows)
        return self.now.window_is_over and self.known[self.size].weight >= windows


def compared_text(at: Situation) -> str:
    """Return a text: the present size and its measured neighbours, with their rates."""
    smaller = [n for n in at.known if n < at.size]
    larger = [n for n in at.known if n > at.size]
    sizes = [*sorted(smaller)[-1:], at.size, *sorted(larger)[:1]]
    text = ", ".join(measured_text(at.memory, n, at.now) for n in sizes)
    objective = at.now.objective
    if objective.needed is not None and objective.enough is not None:
        text += (
            f"; finishTime needs {objective.needed:.1f} samples/s, {objective.enough:.1f} with a "
            "reserve"
        )
    if objective.kind == "Deadline" and objective.by_efficiency:
        text += "; the training reports no total of steps, which Deadline needs"
    return text


def measured_text(memory: ScalingMemory, size: int, now: ScalingInputs) -> str:
    """Return a text: a size with its rate, and what that means for the objective."""
    return f"{size} members: {rate_text(now.objective, memory.rates.mean(size), size)}"
