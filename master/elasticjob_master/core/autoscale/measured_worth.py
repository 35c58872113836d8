"""The worth of the measured sizes, and their comparison."""

from __future__ import annotations

from dataclasses import dataclass

from elasticjob_master.core.autoscale.curve import error_of_ratio
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
    """The facts that the rules of the search use.

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
    def climbs(self) -> bool:
        """True if the search may still go up by large steps, because it can turn back."""
        return (
            self.search.direction >= 0
            and not self.search.turned
            and self.search.plans < THRESHOLDS.search_plans
        )

    def rate(self, size: int) -> float:
        """Return the samples per second at a measured size."""
        return self.memory.rates.mean(size)

    def worth(self, size: int) -> float:
        """Return the worth of a measured size for the objective."""
        return self.now.objective.worth(self.rate(size), size)


def best_measured(at: Situation) -> int:
    """Return the measured size within the bounds that is worth most; of a tie the smallest one."""
    sizes = [n for n in at.known if at.bounds.minimum <= n <= at.bounds.maximum]
    if not sizes:
        return at.size
    least = max(map(at.worth, sizes)) - at.now.objective.tie
    return min(n for n in sizes if at.worth(n) >= least)


def clearly_better(at: Situation) -> int | None:
    """Return the best measured size if it is clearly better than the present one, else None.

    The difference must exceed what noise and age explain. Of a tie, clearly fewer members are
    better, too.
    """
    found = best_measured(at)
    more = at.worth(found) - at.worth(at.size)
    tie = at.now.objective.tie
    if tie and found * THRESHOLDS.clearly_fewer < at.size:
        return found if more >= -tie else None
    present = at.memory.rates.by_size[at.size]
    other = at.memory.rates.by_size[found]
    error = error_of_ratio(other, present, at.memory.rates.noise, present.at)
    least = max(THRESHOLDS.clearly_better, THRESHOLDS.clearly_better_errors * error)
    return found if more > least else None


def compared_text(at: Situation) -> str:
    """Return a text: the present size and its measured neighbours, with their rates."""
    smaller = [n for n in at.memory.rates.by_size if n < at.size]
    larger = [n for n in at.memory.rates.by_size if n > at.size]
    sizes = [*sorted(smaller)[-1:], at.size, *sorted(larger)[:1]]
    return ", ".join(measured_text(at.memory, n, at.now) for n in sizes)


def measured_text(memory: ScalingMemory, size: int, now: ScalingInputs) -> str:
    """Return a text: a size with its rate, and what that means for the objective."""
    return f"{size} members: {rate_text(now.objective, memory.rates.mean(size), size)}"
