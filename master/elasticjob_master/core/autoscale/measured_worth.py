"""What the sizes that were measured are worth, and how they compare."""

from __future__ import annotations

import math

from elasticjob_master.core.autoscale.candidate_sizes import allowed, rounder
from elasticjob_master.core.autoscale.curve import error_of_ratio
from elasticjob_master.core.autoscale.decision import Bounds, ScalingInputs
from elasticjob_master.core.autoscale.objective_text import rate_text
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory

GAP = 1.5
"""Between two measured sizes with this ratio another one may be better than both."""
_FEWER = 1.25
"""A size that many times as large has clearly more members."""
_CLEARLY = 0.03
_CLEARLY_ERRORS = 1.5
"""A measured size is worth clearly more if it is by this part, and by so many standard errors of
the difference.
"""


def best_measured(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds) -> int:
    """Return the measured size within the bounds that is worth most.

    The present one if there is none.
    """
    return _best(memory, now, _measured_sizes(memory, bounds)) or now.size


def clearly_better(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds) -> int | None:
    """Return the measured size that is worth most, if it is clearly better than the present one.

    None: it is not. Where fewer members that are about as good would be better, but are not
    clearly, more of them may be.
    """
    found = best_measured(memory, now, bounds)
    if found != now.size and _is_clearly_better(memory, found, now):
        return found
    if not now.objective.tie:
        return None
    sizes = [
        n
        for n in _measured_sizes(memory, bounds)
        if n != now.size and _is_clearly_better(memory, n, now)
    ]
    return _best(memory, now, sizes)


def _measured_sizes(memory: ScalingMemory, bounds: Bounds) -> list[int]:
    return [
        n for n, rate in memory.rates.items() if rate > 0 and bounds.minimum <= n <= bounds.maximum
    ]


def _best(memory: ScalingMemory, now: ScalingInputs, sizes: list[int]) -> int | None:
    """Return the size that is worth most, of a tie the smallest one; None: there is none."""
    best = max(sizes, key=lambda n: _measured_worth(memory, n, now), default=None)
    if best is None or not now.objective.tie:
        return best
    least = _measured_worth(memory, best, now) - now.objective.tie
    return min(n for n in sizes if _measured_worth(memory, n, now) >= least)


def _is_clearly_better(memory: ScalingMemory, size: int, now: ScalingInputs) -> bool:
    """Return whether a measured size is worth more than the present one by more than noise and age explain.

    Where that is a tie, clearly fewer members are better, too.
    """
    present = memory.rate(now.size)
    error = error_of_ratio(memory.rate(size), present, memory.noise, present.at)
    more = _measured_worth(memory, size, now) - _measured_worth(memory, now.size, now)
    if now.objective.tie and size * _FEWER < now.size:
        return more >= -now.objective.tie
    return more > max(_CLEARLY, _CLEARLY_ERRORS * error)


def size_between(
    memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, lower: int
) -> int | None:
    """Return the middle of a wide gap between the present size and a lower one.

    None: nothing is to be found there.
    """
    if (
        lower >= now.size
        or now.size < GAP * lower
        or any(lower < n < now.size for n in memory.rates)
    ):
        return None
    if abs(memory.rates[now.size] / memory.rates[lower] - 1) < _CLEARLY:
        return None  # a plateau
    middle = rounder(math.ceil(math.sqrt(lower * now.size)), bounds, below=now.size)
    return middle if lower < allowed(middle, bounds) < now.size else None


def compared_text(memory: ScalingMemory, size: int, now: ScalingInputs) -> str:
    """Return a text: the present size and the nearest measured ones, with their rates."""
    others = [n for n in memory.rates if n != size]
    near = [
        max((n for n in others if n < size), default=None),
        min((n for n in others if n > size), default=None),
    ]
    return ", ".join(
        measured_text(memory, n, now) for n in sorted({size, *(n for n in near if n is not None)})
    )


def measured_text(memory: ScalingMemory, size: int, now: ScalingInputs) -> str:
    """Return a text: a size with its rate, and what that means for the objective."""
    return f"{size} members: {rate_text(now.objective, memory.rates[size], size)}"


def _measured_worth(memory: ScalingMemory, size: int, now: ScalingInputs) -> float:
    return now.objective.worth(memory.rates[size], size)
