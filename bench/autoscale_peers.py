"""Two plain policies to compare the auto-scaler with, in the same simulated jobs.

Doubling is what most elastic training does: twice as many members for as long as that pays. The
other one doubles by early windows, fits one curve to what it has measured, and stays at the
curve's best size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from operator import mul

from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision
from elasticjob_master.core.autoscale.job_scaling import JobScaling
from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS
from elasticjob_master.monitors.autoscaler import AutoScaler
from elasticjob_master.monitors.view import JobView

Rates = Mapping[int, float]
Policy = Callable[[Rates, Bounds, Objective], int]
"""Returns the next size by the rates measured so far, in order. At one of these sizes it stays."""


class PeerScaler(AutoScaler):
    """Measures each size once, and goes where a policy says."""

    def __init__(self, policy: Policy, window_part: float) -> None:
        """Begin; a size is measured for this part of a window."""
        super().__init__()
        self._policy = policy
        self._window_part = window_part
        self._rates: dict[int, float] = {}
        self._round = -1
        self._before = self._counted = 0.0
        self._began: float | None = None
        self._settled = False

    def tick(
        self,
        job: JobView,
        scaling: JobScaling | None,
        now: float,
        *,
        wall: float,
        plan_requested: bool,
    ) -> ScalingDecision | None:
        """Return the next size when the present one is measured."""
        progress = job.progress
        if progress.round != self._round:
            self._round = progress.round
            self._before = progress.samples
            self._began = None
        if scaling is None or self._settled or progress.samples == self._before:
            return None  # in a rescale nothing is trained
        if self._began is None:
            self._began = now + THRESHOLDS.warm_up * scaling.cooldown
        if now <= self._began:
            self._counted = progress.samples
            return None
        seconds = now - self._began
        if seconds < self._window_part * scaling.cooldown:
            return None
        self._rates[scaling.desired] = (progress.samples - self._counted) / seconds
        size = self._policy(self._rates, scaling.bounds, scaling.objective)
        self._settled = size in self._rates
        if size == scaling.desired:
            return None
        return ScalingDecision(f"to {size}", self.memory.with_search(plans=1), size=size)


def doubling(rates: Rates, bounds: Bounds, objective: Objective) -> int:
    """Return twice as many members while that pays, else the size before."""
    *before, size = rates
    if before and _worth(rates, size, objective) <= _worth(rates, before[-1], objective):
        return before[-1]
    return min(2 * size, bounds.maximum)


def fitted_curve(rates: Rates, bounds: Bounds, objective: Objective) -> int:
    """Return doubles and halves while they pay, and then once the best size of a curve."""
    best = max(rates, key=lambda size: _worth(rates, size, objective))
    if best == max(rates) < bounds.maximum:
        return min(2 * best, bounds.maximum)
    if best == min(rates) > bounds.minimum:
        return max(best // 2, bounds.minimum)
    *before, latest = rates
    if len(before) > 1 and not any(latest in (2 * size, size // 2) for size in before):
        return best  # the curve's size is measured, too
    curve = _fitted(rates)
    sizes = range(max(bounds.minimum, best // 2), min(bounds.maximum, 2 * best) + 1)
    expected = max(sizes, key=lambda size: objective.worth(1 / curve(size), size))
    return best if expected in rates else expected


def _worth(rates: Rates, size: int, objective: Objective) -> float:
    return objective.worth(rates[size], size)


_TERMS: Sequence[Callable[[int], float]] = (lambda n: 1 / n, lambda n: 1.0, lambda n: float(n))
"""The time of a sample: a part that is shared, one that stays, and one that grows with the size."""


def _fitted(rates: Rates) -> Callable[[int], float]:
    """Return the seconds of a sample by size, as a sum of the terms with no negative factor."""
    found: tuple[float, Sequence[tuple[float, Callable[[int], float]]]] = (math.inf, ())
    for count in range(1, min(len(_TERMS), len(rates)) + 1):
        for terms in combinations(_TERMS, count):
            # Relative errors count, so each equation is divided by the measured time.
            rows = [[term(size) * rate for term in terms] for size, rate in rates.items()]
            factors = _least_squares(rows)
            if factors is None or min(factors) < 0:
                continue
            error = sum((sum(map(mul, row, factors)) - 1) ** 2 for row in rows)
            if error < found[0]:
                found = (error, tuple(zip(factors, terms, strict=True)))
    return lambda size: sum(factor * term(size) for factor, term in found[1])


def _least_squares(rows: Sequence[Sequence[float]]) -> list[float] | None:
    """Return the factors with which each row's sum is nearest to 1; None if many are."""
    count = len(rows[0])
    matrix = [[sum(row[i] * row[j] for row in rows) for j in range(count)] for i in range(count)]
    right = [sum(row[i] for row in rows) for i in range(count)]
    for i in range(count):
        if abs(matrix[i][i]) < 1e-12:
            return None
        for below in range(i + 1, count):
            factor = matrix[below][i] / matrix[i][i]
            matrix[below] = [a - factor * b for a, b in zip(matrix[below], matrix[i], strict=True)]
            right[below] -= factor * right[i]
    found = [0.0] * count
    for i in reversed(range(count)):
        done = sum(matrix[i][j] * found[j] for j in range(i + 1, count))
        found[i] = (right[i] - done) / matrix[i][i]
    return found


PEERS: Mapping[str, Callable[[], PeerScaler]] = {
    "doubling": lambda: PeerScaler(doubling, 1.0),
    "a fitted curve": lambda: PeerScaler(fitted_curve, 0.15),
}
