"""Throughput as a function of the size.

A set of curves fitted to the measurements, each with its likelihood. One formula covers the common
cases. A single member trains at `level`. Beyond the `knee` a shared resource (serial work,
parameter servers, input) limits the throughput, gradually (`sharpness` 1 is Amdahl's law) or
abruptly (a hard limit). `congestion` is communication that grows with the square of the size, so
that too many members are slower than fewer. A few measurements cannot distinguish these cases, so
all curves are kept, weighted by how well they fit.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from operator import mul

from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.core.autoscale.scaling_memory import MeasuredRate

_SHARPNESS = (1.0, 2.0, 4.0, 10.0, 40.0)
_FINE = 1.05
_COARSE = 1.2
_CONGESTION_STEP = 1.1
"""Ratios of consecutive knees, without and with congestion, and of consecutive congestions."""
_CONGESTED = 0.3
_UNBOUNDED = 0.05
"""Prior probabilities of congestion, and of no limit at all."""
_INEXACT = 0.012
"""Relative error of the formula itself."""
_ALONE = 0.3
"""Relative error of what a single member, which communicates with nobody, says about several."""
_AGE = 0.1
"""Relative error of a rate for each hour since it was measured: everything changes with time."""
_NEGLIGIBLE = 1e-3
_SUFFICIENT = 0.97
"""A size is enough if it reaches this part of the best throughput."""
_WASTE = 1.15
"""A size is too large if it is more than this multiple of the best size, plus one."""


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
        return (
            size
            * math.exp(self.level)
            / _slowdown(size, self.knee, self.sharpness, self.congestion)
        )

    def gain(self, size: int) -> float:
        """Return what one more member adds, relative to the throughput of the average member."""
        return size * (self.rate(size + 1) / self.rate(size) - 1)

    def best(self, low: int, high: int, objective: Objective) -> int:
        """Return the largest size up to which every member meets the objective.

        Each adds less than the one before.
        If a rate is enough, and a smaller size reaches it, it is that one.
        """
        enough = objective.enough
        return low + bisect_left(
            range(low, high),
            True,
            key=lambda size: (
                self.gain(size) < objective.threshold(size)
                or (enough is not None and self.rate(size) >= enough)
            ),
        )

    def enough(self, low: int, best: int) -> int:
        """Return the smallest size that nearly reaches the throughput of the best one."""
        least = _SUFFICIENT * self.rate(best)
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
        return SizeEstimates(
            tuple(SizeEstimate(weight, *sizes) for sizes, weight in sorted(found.items()))
        )


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
        return sum(estimate.weight for estimate in self.estimates if estimate.enough > size)

    def too_large(self, size: int) -> float:
        """Return the likelihood that a size is well above the best one."""
        return sum(
            estimate.weight for estimate in self.estimates if estimate.best * _WASTE + 1 < size
        )


def fit_curves(rates: Mapping[int, MeasuredRate], noise: float) -> CurveFit:
    """Fit the curves to the measured rates, of which at least one is positive; others are ignored.

    If no curve explains the rates, all of them are doubted in the same measure, so that more curves
    remain.

    Args:
        rates: by size.
        noise: the standard deviation of repeated windows, relative to the rate.
    """
    known = sorted((size, rate) for size, rate in rates.items() if rate.mean > 0)
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
    for (prior, knee, sharpness, congestion), levels in zip(
        shapes, zip(*columns, strict=True), strict=True
    ):
        level = sum(map(mul, levels, precisions)) / total
        error = sum(
            precision * (value - level) ** 2
            for value, precision in zip(levels, precisions, strict=True)
        )
        tried.append((math.log(prior), error, (level, knee, sharpness, congestion)))
    misfit = max(1.0, min(error for _, error, _ in tried) / max(1, len(known) - 2))
    return CurveFit(
        _normalized([(prior - error / misfit / 2, curve) for prior, error, curve in tried])
    )


def relative_error(rate: MeasuredRate, noise: float, now: float) -> float:
    """Return the standard deviation of a measured rate, relative to it, as a measure of the present throughput."""
    # Few windows of a size say little about their own noise: a single window gets twice the
    # variance.
    age = max(0.0, now - rate.at) / 3600 if rate.at else 0.0
    return math.sqrt(noise**2 * (1 + 1 / max(1.0, rate.weight)) / rate.weight + (_AGE * age) ** 2)


def error_of_ratio(first: MeasuredRate, second: MeasuredRate, noise: float, now: float) -> float:
    """Return the standard deviation of the ratio of two measured rates, relative to it."""
    return math.hypot(relative_error(first, noise, now), relative_error(second, noise, now))


def _form_error(size: int, sizes: int) -> float:
    """Return the variance of the formula itself at a size."""
    return _INEXACT**2 if size > 1 or sizes < 2 else _ALONE**2


def _shapes(smallest: int, largest: int) -> list[tuple[float, float, float, float]]:
    """Return for each shape its prior probability, knee, sharpness and congestion."""
    bounded = 1 - _UNBOUNDED
    knees = _geometric_steps(smallest / 4, 8 * largest, _FINE)
    each = bounded * (1 - _CONGESTED) / (len(knees) * len(_SHARPNESS))
    shapes = [(each, knee, sharpness, math.inf) for knee in knees for sharpness in _SHARPNESS]
    knees = _geometric_steps(smallest / 4, 8 * largest, _COARSE)
    congestions = _geometric_steps(smallest / 2, 4 * largest, _CONGESTION_STEP)
    each = bounded * _CONGESTED / (len(knees) * len(congestions))
    shapes += [(each, knee, 1.0, congestion) for knee in knees for congestion in congestions]
    return [*shapes, (_UNBOUNDED, math.inf, 1.0, math.inf)]


def _geometric_steps(low: float, high: float, step: float) -> list[float]:
    return [low * step**rung for rung in range(math.ceil(math.log(high / low, step)) + 1)]


def _normalized(tried: list[tuple[float, tuple[float, float, float, float]]]) -> tuple[Curve, ...]:
    """Drop the curves of negligible likelihood, and scale the others' so that they sum up to 1.

    `tried` has the logarithm of each likelihood, with level, knee, sharpness and congestion.
    """
    least = max(likelihood for likelihood, _ in tried) + math.log(_NEGLIGIBLE)
    kept = [
        (math.exp(likelihood - least), curve) for likelihood, curve in tried if likelihood >= least
    ]
    total = sum(weight for weight, _ in kept)
    return tuple(Curve(weight / total, *curve) for weight, curve in kept)


def _slowdown(size: int, knee: float, sharpness: float, congestion: float) -> float:
    """Return the factor by which the shared resource and the communication slow down each member."""
    shared = (
        1 + size / knee
        if sharpness == 1
        else math.pow(1 + math.pow(size / knee, sharpness), 1 / sharpness)
    )
    return shared + (size / congestion) ** 2
