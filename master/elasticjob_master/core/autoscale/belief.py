"""What the measurements make believe about the sizes, for people.

Decisions are made by `size_search`.
"""

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
from elasticjob_master.core.autoscale.scaling_memory import MOST_SIZES, MeasuredRate

_LOW = 0.05
_HIGH = 0.95
"""A range leaves out so much of the likelihood below it and above it: it holds with 90 %."""
_ERRORS = 1.645
"""So many standard errors to both sides hold with the same likelihood."""
_LEAST_SIZES = 2
"""Of so many measured sizes on, curves are believed."""
T = TypeVar("T", int, float)


@dataclass(frozen=True)
class Evidence:
    """All that a belief follows from.

    Attributes:
        rates: by size, as measured; the one measured last is the last.
        noise: the standard deviation of repeated windows, relative to the rate.
        size: the present one.
        bounds: the sizes that may be requested.
        objective: see `ScalingInputs`.
    """

    rates: Mapping[int, MeasuredRate]
    noise: float
    size: int
    bounds: Bounds
    objective: Objective


@dataclass(frozen=True)
class Expectation:
    """What the curves expect of a size.

    Attributes:
        rate: samples per second.
        low: the bounds between which it is with a likelihood of 90 %, as far as one of the curves is right.
        high: see `low`.
        too_small: the likelihood that it is not enough for nearly the throughput of the best size.
        too_large: the likelihood that it is well above the best size.
    """

    rate: float
    low: float
    high: float
    too_small: float
    too_large: float


@dataclass(frozen=True)
class SizeBelief:
    """What is known of one size.

    Attributes:
        measured: what was measured there; None: nothing.
        error: the standard error of what was measured, relative to it.
        expected: None: too little was measured to expect anything.
    """

    size: int
    measured: MeasuredRate | None
    error: float
    expected: Expectation | None


@dataclass(frozen=True)
class Belief:
    """What is known of the sizes.

    Attributes:
        sizes: in ascending order: those that were measured and, as soon as curves expect something, the present one,
            the largest one allowed, and `best`.
        best: the smallest and the largest of what is the best size with a likelihood of 90 %; None: not known.
    """

    sizes: tuple[SizeBelief, ...] = ()
    best: tuple[int, int] | None = None


class BeliefOfLatestEvidence:
    """Forms a belief once for the same evidence.

    That costs far more than to show it, and anybody may ask for it.
    """

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
    """Return what the measurements make believe.

    Curves through a single measured size would show no more than what they assume, so they are not
    asked.
    """
    known = {size: rate for size, rate in evidence.rates.items() if rate.mean > 0}
    latest = max((rate.at for rate in known.values()), default=0.0)
    errors = {size: relative_error(rate, evidence.noise, latest) for size, rate in known.items()}
    if len(known) < _LEAST_SIZES:
        return Belief(
            tuple(SizeBelief(size, known[size], errors[size], None) for size in sorted(known))
        )
    size = max(1, evidence.size)
    bounds = evidence.bounds
    fitted = fit_curves(known, evidence.noise)
    estimates = fitted.size_estimates(
        max(1, min(bounds.minimum, size)), max(bounds.maximum, size), evidence.objective
    )
    best = _range((estimate.best, estimate.weight) for estimate in estimates.estimates)
    others = {size, max(1, bounds.maximum), *best}
    measured_only = [n for n in known if n not in others]
    shown = sorted({*measured_only[-(MOST_SIZES - len(others)) :], *others})
    inexact = _ERRORS * min(errors.values())
    sizes = [
        SizeBelief(n, known.get(n), errors.get(n, 0.0), _expectation(n, fitted, estimates, inexact))
        for n in shown
    ]
    return Belief(tuple(sizes), best)


def _expectation(
    size: int, fitted: CurveFit, estimates: SizeEstimates, inexact: float
) -> Expectation:
    """Return what is expected.

    Each curve passes nearly through what was measured, so all are as wrong as that.
    """
    low, high = _range((curve.rate(size), curve.weight) for curve in fitted.curves)
    return Expectation(
        rate=fitted.rate(size),
        low=low / (1 + inexact),
        high=high * (1 + inexact),
        too_small=min(1.0, estimates.too_small(size)),
        too_large=min(1.0, estimates.too_large(size)),
    )


def _range(weighted: Iterable[tuple[T, float]]) -> tuple[T, T]:
    """Return the values that leave out so much of the likelihood below and above."""
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
