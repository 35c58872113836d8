"""Throughput as a function of the size: curves fitted to the measurements, with their likelihoods.

One formula covers the common cases. A single member trains at `level`. Beyond the `knee` a shared
resource (serial work, parameter servers, input) limits the throughput, gradually (`sharpness` 1 is
Amdahl's law) or abruptly (a hard limit). `congestion` is communication that grows with the square
of the size, so that too many members are slower than fewer. A few measurements cannot distinguish
these cases, so all curves are kept, weighted by how well they fit.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from operator import mul

from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.core.autoscale.scaling_memory import MeasuredRate
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


@dataclass(frozen=True)
class Curve:
    """One of the possible curves.

    Attributes:
        weight: its likelihood; those of a fit sum up to 1.
        level: natural logarithm of the samples per second of a single member.
        knee: the size from which on a shared resource limits the throughput.
        sharpness: how abruptly it does so.
        congestion: the size at which communication takes as long as the work of a single member.
    """

    weight: float
    level: float
    knee: float
    sharpness: float
    congestion: float

    def rate(self, size: int) -> float:
        """Return the samples per second."""
        slowdown = _slowdown(size, self.knee, self.sharpness, self.congestion)
        return size * math.exp(self.level) / slowdown

    def gain(self, size: int) -> float:
        """Return what one more member adds, relative to the throughput of an average member."""
        return size * (self.rate(size + 1) / self.rate(size) - 1)

    def best(self, low: int, high: int, objective: Objective) -> int:
        """Return the largest size up to which every member meets the objective.

        A smaller size is the best one if its rate is enough.
        """
        enough = math.inf if objective.enough is None else objective.enough

        def is_last(size: int) -> bool:
            return self.gain(size) < objective.threshold(size) or self.rate(size) >= enough

        return low + bisect_left(range(low, high), True, key=is_last)

    def enough(self, low: int, best: int) -> int:
        """Return the smallest size that nearly reaches the throughput of the best one."""
        least = THRESHOLDS.nearly_best * self.rate(best)
        return low + bisect_left(range(low, best), True, key=lambda size: self.rate(size) >= least)


@dataclass(frozen=True)
class CurveFit:
    """The curves that explain the measurements, with their likelihoods."""

    curves: tuple[Curve, ...]

    def rate(self, size: int) -> float:
        """Return the expected samples per second."""
        return sum(curve.weight * curve.rate(size) for curve in self.curves)

    def size_estimates(self, low: int, high: int, objective: Objective) -> SizeEstimates:
        """Return the best sizes according to the curves, with their likelihoods."""
        found: dict[tuple[int, int], float] = {}
        for curve in self.curves:
            best = curve.best(low, high, objective)
            enough = curve.enough(low, best)
            found[enough, best] = found.get((enough, best), 0.0) + curve.weight
        estimates = [SizeEstimate(weight, *sizes) for sizes, weight in sorted(found.items())]
        return SizeEstimates(tuple(estimates))


@dataclass(frozen=True)
class SizeEstimate:
    """The best size according to some of the curves.

    Attributes:
        weight: the likelihood of these curves.
        enough: the smallest size that nearly reaches the throughput of the best one.
        best: the largest size up to which every member meets the objective.
    """

    weight: float
    enough: int
    best: int


@dataclass(frozen=True)
class SizeEstimates:
    """All estimates, ordered by the size that is enough."""

    estimates: tuple[SizeEstimate, ...]

    def enough(self, likelihood: float) -> int:
        """Return the smallest size that is enough with this likelihood."""
        total = 0.0
        for estimate in self.estimates:
            total += estimate.weight
            if total >= likelihood:
                return estimate.enough
        return self.estimates[-1].enough

    def too_small(self, size: int) -> float:
        """Return the likelihood that a size is not enough."""
        return sum(each.weight for each in self.estimates if each.enough > size)

    def too_large(self, size: int) -> float:
        """Return the likelihood that a size is well above the best one."""
        waste = THRESHOLDS.waste
        return sum(each.weight for each in self.estimates if each.best * waste + 1 < size)


def fit_curves(rates: Mapping[int, MeasuredRate], noise: float) -> CurveFit:
    """Fit the curves to the measured rates, all of which must be positive.

    If no curve explains the rates, all of them are doubted in the same measure, so that more curves
    remain.

    Args:
        rates: the rates by size; at least one.
        noise: the standard deviation of repeated windows, relative to the rate.
    """
    known = sorted(rates.items())
    latest = max(rate.at for _, rate in known)
    precisions = [
        1 / (relative_error(rate, noise, latest) ** 2 + _form_error(size, len(known)))
        for size, rate in known
    ]
    total = sum(precisions)
    shapes = _shapes(known[0][0], known[-1][0])
    columns = [
        [math.log(rate.mean / size) + math.log(_slowdown(size, *shape)) for _, *shape in shapes]
        for size, rate in known
    ]
    tried: list[tuple[float, float, tuple[float, float, float, float]]] = []
    for (prior, *shape), levels in zip(shapes, zip(*columns, strict=True), strict=True):
        level = sum(map(mul, levels, precisions)) / total
        deviations = ((value - level) ** 2 for value in levels)
        error = sum(map(mul, precisions, deviations))
        knee, sharpness, congestion = shape
        tried.append((math.log(prior), error, (level, knee, sharpness, congestion)))
    misfit = max(1.0, min(error for _, error, _ in tried) / max(1, len(known) - 2))
    return CurveFit(
        _normalized([(prior - error / misfit / 2, curve) for prior, error, curve in tried])
    )


def relative_error(rate: MeasuredRate, noise: float, now: float) -> float:
    """Return the standard deviation of a rate as a measure of the present throughput, relative to it.

    Few windows of a size say little about their own noise: a single window gets twice the variance.
    Everything changes with time, so the error grows with age.
    """
    age = max(0.0, now - rate.at) / 3600 if rate.at else 0.0
    variance = noise**2 * (1 + 1 / max(1.0, rate.weight)) / rate.weight
    return math.sqrt(variance + (THRESHOLDS.age_error * age) ** 2)


def error_of_ratio(first: MeasuredRate, second: MeasuredRate, noise: float, now: float) -> float:
    """Return the standard deviation of the ratio of two measured rates, relative to it."""
    return math.hypot(relative_error(first, noise, now), relative_error(second, noise, now))


def _form_error(size: int, sizes: int) -> float:
    """Return the variance of the formula itself at a size."""
    if size == 1 and sizes > 1:
        return THRESHOLDS.single_member_error**2
    return THRESHOLDS.formula_error**2


def _shapes(smallest: int, largest: int) -> list[tuple[float, float, float, float]]:
    """Return the prior probability, knee, sharpness and congestion of each shape."""
    bounded = 1 - THRESHOLDS.unbounded
    congested = THRESHOLDS.congested
    knees = _geometric_steps(smallest / 4, 8 * largest, THRESHOLDS.knee_step)
    each = bounded * (1 - congested) / (len(knees) * len(THRESHOLDS.sharpness))
    shapes = [
        (each, knee, sharpness, math.inf) for knee in knees for sharpness in THRESHOLDS.sharpness
    ]
    knees = _geometric_steps(smallest / 4, 8 * largest, THRESHOLDS.congested_knee_step)
    congestions = _geometric_steps(smallest / 2, 4 * largest, THRESHOLDS.congestion_step)
    each = bounded * congested / (len(knees) * len(congestions))
    shapes += [(each, knee, 1.0, congestion) for knee in knees for congestion in congestions]
    return [*shapes, (THRESHOLDS.unbounded, math.inf, 1.0, math.inf)]


def _geometric_steps(low: float, high: float, step: float) -> list[float]:
    return [low * step**rung for rung in range(math.ceil(math.log(high / low, step)) + 1)]


def _normalized(tried: list[tuple[float, tuple[float, float, float, float]]]) -> tuple[Curve, ...]:
    """Drop the curves of negligible likelihood, and scale the others' to a sum of 1.

    Args:
        tried: the logarithm of each likelihood, with level, knee, sharpness and congestion.
    """
    least = max(likelihood for likelihood, _ in tried) + math.log(THRESHOLDS.negligible)
    kept = [
        (math.exp(likelihood - least), curve) for likelihood, curve in tried if likelihood >= least
    ]
    total = sum(weight for weight, _ in kept)
    return tuple(Curve(weight / total, *curve) for weight, curve in kept)


def _slowdown(size: int, knee: float, sharpness: float, congestion: float) -> float:
    """Return the factor by which the shared resource and communication slow each member down."""
    if sharpness == 1:
        shared = 1 + size / knee
    else:
        shared = math.pow(1 + math.pow(size / knee, sharpness), 1 / sharpness)
    return shared + (size / congestion) ** 2
