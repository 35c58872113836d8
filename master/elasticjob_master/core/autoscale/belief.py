"""The measurements' evidence about the sizes, for users; `size_search` makes the decisions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from elasticjob_master.core.autoscale.curve import (
    CurveFit,
    SizeEstimates,
    fit_curves,
    relative_error,
)
from elasticjob_master.core.autoscale.decision import Bounds
from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.core.autoscale.scaling_memory import MeasuredRate
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS

_LOW = 0.05
_HIGH = 0.95
_ERRORS = 1.645
"""A range holds with a likelihood of 90 %, which is this number of standard errors to each side."""
CURVE_POINTS = 24
"""The most points of a published curve."""
_CURVE_FACTOR = 2
"""It ends at this multiple of the sizes that matter, however many members are allowed."""
T = TypeVar("T", int, float)


@dataclass(frozen=True)
class Evidence:
    """All that a belief follows from.

    Attributes:
        rates: the measured rates by size; the size measured last comes last.
        noise: the standard deviation of repeated windows, relative to the rate.
        size: the present size.
        bounds: the sizes that may be requested.
        objective: what the size is chosen for.
    """

    rates: Mapping[int, MeasuredRate]
    noise: float
    size: int
    bounds: Bounds
    objective: Objective


@dataclass(frozen=True)
class Expectation:
    """The throughput that the curves expect at a size.

    Attributes:
        rate: samples per second.
        low: the rate is between `low` and `high` with a likelihood of 90 %, if a curve is right.
        high: see `low`.
        too_small: the likelihood that the size does not nearly reach the best size's throughput.
        too_large: the likelihood that the size is well above the best one.
    """

    rate: float
    low: float
    high: float
    too_small: float
    too_large: float


@dataclass(frozen=True)
class SizeBelief:
    """The evidence about one size.

    Attributes:
        measured: the rate measured there; None if the size was not measured.
        error: the standard error of the measured rate, relative to it.
        expected: None if too little was measured to expect anything.
    """

    size: int
    measured: MeasuredRate | None
    error: float
    expected: Expectation | None


@dataclass(frozen=True)
class CurvePoint:
    """The expected throughput at a size of the curve; see `Expectation`."""

    size: int
    rate: float
    low: float
    high: float


@dataclass(frozen=True)
class Belief:
    """The evidence about the sizes.

    Attributes:
        sizes: the measured sizes in ascending order. As soon as curves expect something, also the
            present size, the largest one allowed, and the ends of `best`.
        best: the best size is between these two with a likelihood of 90 %; None if unknown.
        curve: the expected throughput of sizes in equal ratios, for a drawing.
    """

    sizes: tuple[SizeBelief, ...] = ()
    best: tuple[int, int] | None = None
    curve: tuple[CurvePoint, ...] = ()


class BeliefOfLatestEvidence:
    """Keeps the belief of the latest evidence, because fitting the curves takes long."""

    def __init__(self) -> None:
        self._evidence: Evidence | None = None
        self._belief = Belief()

    def form(self, evidence: Evidence) -> Belief:
        """Return the belief."""
        if evidence != self._evidence:
            self._belief = form_belief(evidence)
            self._evidence = evidence
        return self._belief


def form_belief(evidence: Evidence) -> Belief:
    """Return what the measurements show.

    Curves through a single measured size would show only what they assume, so they are not fitted.
    """
    known = {size: rate for size, rate in evidence.rates.items() if rate.mean > 0}
    latest = max((rate.at for rate in known.values()), default=0.0)
    errors = {size: relative_error(rate, evidence.noise, latest) for size, rate in known.items()}
    if len(known) < 2:
        sizes = [SizeBelief(size, known[size], errors[size], None) for size in sorted(known)]
        return Belief(tuple(sizes))
    size = max(1, evidence.size)
    bounds = evidence.bounds
    fitted = fit_curves(known, evidence.noise)
    lowest = max(1, min(bounds.minimum, size))
    estimates = fitted.size_estimates(lowest, max(bounds.maximum, size), evidence.objective)
    best = _range((estimate.best, estimate.weight) for estimate in estimates.estimates)
    others = {size, max(1, bounds.maximum), *best}
    measured_only = [n for n in known if n not in others]
    shown = sorted({*measured_only[-(THRESHOLDS.stored_sizes - len(others)) :], *others})
    error = _ERRORS * min(errors.values())
    sizes = [
        SizeBelief(n, known.get(n), errors.get(n, 0.0), _expectation(n, fitted, estimates, error))
        for n in shown
    ]
    farthest = _CURVE_FACTOR * max(size, *known, *best)
    drawn = _curve_sizes(min(lowest, *known), min(max(bounds.maximum, size, *known), farthest))
    curve = tuple(_point(n, fitted, error) for n in drawn)
    return Belief(tuple(sizes), best, curve)


def _expectation(
    size: int, fitted: CurveFit, estimates: SizeEstimates, error: float
) -> Expectation:
    """Return what the curves expect of a size."""
    point = _point(size, fitted, error)
    return Expectation(
        rate=point.rate,
        low=point.low,
        high=point.high,
        too_small=min(1.0, estimates.too_small(size)),
        too_large=min(1.0, estimates.too_large(size)),
    )


def _point(size: int, fitted: CurveFit, error: float) -> CurvePoint:
    """Return the throughput that the curves expect at a size.

    Each curve passes nearly through the measured rates, so all of them have at least that `error`.
    """
    low, high = _range((curve.rate(size), curve.weight) for curve in fitted.curves)
    return CurvePoint(size, fitted.rate(size), low / (1 + error), high * (1 + error))


def _curve_sizes(low: int, high: int) -> list[int]:
    """Return sizes in equal ratios, because a curve bends most where it is small."""
    steps = CURVE_POINTS - 1
    return sorted({round(low * (high / low) ** (step / steps)) for step in range(CURVE_POINTS)})


def _range(weighted: Iterable[tuple[T, float]]) -> tuple[T, T]:
    """Return the values between which 90 % of the weight is."""
    ordered = sorted(weighted)
    total = math.fsum(weight for _, weight in ordered)
    below = 0.0
    low = ordered[0][0]
    high = ordered[-1][0]
    for value, weight in ordered:
        if below <= _LOW * total:
            low = value
        if below < _HIGH * total:
            high = value
        below += weight
    return low, high
