"""What the sizes that were measured are worth, and how they compare."""

from __future__ import annotations

import math

from elasticjob_master.core.autoscale.candidate_sizes import allowed, rounder
from elasticjob_master.core.autoscale.curve import error_of_ratio
from elasticjob_master.core.autoscale.decision import Bounds, ScalingInputs
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory

GAP = 1.5
"""Between two measured sizes with this ratio another one may be better than both."""
_CLEARLY, _CLEARLY_ERRORS = 0.03, 1.5
"""A measured size is worth clearly more if it is by this part, and by so many standard errors of the difference."""


def best_measured(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds) -> int:
    """Return the measured size within the bounds that is worth most; the present one if there is none."""
    sizes = [n for n, rate in memory.rates.items() if rate > 0 and bounds.minimum <= n <= bounds.maximum]
    return max(sizes, key=lambda n: _measured_worth(memory, n, now), default=now.size)


def is_clearly_worth_more(memory: ScalingMemory, size: int, now: ScalingInputs) -> bool:
    """Return whether a measured size is worth more than the present one by more than noise and age explain."""
    present = memory.rate(now.size)
    error = error_of_ratio(memory.rate(size), present, memory.noise, present.at)
    more = _measured_worth(memory, size, now) - _measured_worth(memory, now.size, now)
    return more > max(_CLEARLY, _CLEARLY_ERRORS * error)


def size_between(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, lower: int) -> int | None:
    """Return the middle of a wide gap between the present size and a lower one; None: nothing is to be found there."""
    if lower >= now.size or now.size < GAP * lower or any(lower < n < now.size for n in memory.rates):
        return None
    if abs(memory.rates[now.size] / memory.rates[lower] - 1) < _CLEARLY:
        return None  # a plateau
    middle = rounder(math.ceil(math.sqrt(lower * now.size)), bounds, below=now.size)
    return middle if lower < allowed(middle, bounds) < now.size else None


def compared_text(memory: ScalingMemory, size: int) -> str:
    """Return a text: the present size and the nearest measured ones, with their rates."""
    others = [n for n in memory.rates if n != size]
    near = [max((n for n in others if n < size), default=None), min((n for n in others if n > size), default=None)]
    return ", ".join(measured_text(memory, n) for n in sorted({size, *(n for n in near if n is not None)}))


def measured_text(memory: ScalingMemory, size: int) -> str:
    """Return a text: a size with its rate."""
    return f"{size} members: {memory.rates[size]:.1f} samples/s"


def _measured_worth(memory: ScalingMemory, size: int, now: ScalingInputs) -> float:
    """Return the worth of a size; where every member adds less, its maximum is the last that meets the objective."""
    return math.log(memory.rates[size]) - now.objective * math.log(size)
