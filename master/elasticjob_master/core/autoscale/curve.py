"""Throughput as a function of the size: the curves that fit the measurements, each with its weight.

One formula covers what is seen in practice. A member alone does `level`; beyond the `knee` something shared (serial
work, parameter servers, input) holds the others up, gently (`sharpness` 1: Amdahl's law) or at once (a hard bound);
and communication that grows with the square of the size makes a crowd slower again. Few measurements do not tell these
apart, so all curves are kept and weighed by how well they fit: what they agree on is known, what not is still open.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from operator import mul

from elasticjob_master.core.autoscale.scaling_memory import MeasuredRate

_SHARPNESS = (1.0, 2.0, 4.0, 10.0, 40.0)
_FINE, _COARSE, _CROWD_STEP = 1.05, 1.2, 1.1
"""Ratios of one knee to the next, without and with a crowd effect, and of one crowd to the next."""
_CROWDED = 0.3
_UNBOUNDED = 0.05
"""How likely they are before anything is measured: a crowd effect at all, and no bound whatsoever."""
_INEXACT = 0.012
"""How far the formula itself may be off."""
_NEGLIGIBLE = 1e-3
_ENOUGH = 0.97
"""The part of the best throughput that a size must reach."""
_WASTE = 1.15
"""From how many times the best size on members are wasted; one more is nothing."""


@dataclass(frozen=True)
class Curve:
    """One of the possible curves.

    Attributes:
        weight: how likely it is; those of a fit sum up to 1.
        level: logarithm of what one member alone would do.
    """

    weight: float
    level: float
    knee: float
    sharpness: float
    crowd: float

    def rate(self, size: int) -> float:
        """Return samples a second."""
        return size * math.exp(self.level) / _drag(size, self.knee, self.sharpness, self.crowd)

    def gain(self, size: int) -> float:
        """Return what a further member adds, as a part of what an average one of these does."""
        return size * (self.rate(size + 1) / self.rate(size) - 1)

    def best(self, low: int, high: int, objective: float) -> int:
        """Return the largest size up to which every member meets the objective; members add less and less."""
        return low + bisect_left(range(low, high), True, key=lambda size: self.gain(size) < objective)

    def enough(self, low: int, best: int) -> int:
        """Return the smallest size that does nearly what the best one does."""
        least = _ENOUGH * self.rate(best)
        return low + bisect_left(range(low, best), True, key=lambda size: self.rate(size) >= least)


@dataclass(frozen=True)
class Fit:
    """The curves that may be, and what they say together."""

    curves: tuple[Curve, ...]

    def rate(self, size: int) -> float:
        """Return the expected samples a second."""
        return sum(curve.weight * curve.rate(size) for curve in self.curves)

    def answers(self, low: int, high: int, objective: float) -> Answers:
        """Return what each curve says is best."""
        found: dict[tuple[int, int], float] = {}
        for curve in self.curves:
            best = curve.best(low, high, objective)
            enough = curve.enough(low, best)
            found[enough, best] = found.get((enough, best), 0.0) + curve.weight
        return Answers(tuple(Answer(weight, *sizes) for sizes, weight in sorted(found.items())))


@dataclass(frozen=True)
class Answer:
    """What the question of the size may have for an answer.

    Attributes:
        weight: how likely it is.
        enough: the smallest size that does nearly what the best one does.
        best: the largest size up to which every member meets the objective.
    """

    weight: float
    enough: int
    best: int


@dataclass(frozen=True)
class Answers:
    """All of them, by the size that is enough."""

    likely: tuple[Answer, ...]

    def enough(self, part: float) -> int:
        """Return the size that is enough with this likelihood."""
        total = 0.0
        for answer in self.likely:
            total += answer.weight
            if total >= part:
                return answer.enough
        return self.likely[-1].enough

    def too_small(self, size: int) -> float:
        """Return how likely a size is not enough."""
        return sum(answer.weight for answer in self.likely if answer.enough > size)

    def too_large(self, size: int) -> float:
        """Return how likely a size is so much above the best one that it matters."""
        return sum(answer.weight for answer in self.likely if answer.best * _WASTE + 1 < size)


def fit(rates: Mapping[int, MeasuredRate], noise: float) -> Fit:
    """Return the curves that explain the measured rates; sizes without throughput say nothing."""
    known = sorted((size, rate) for size, rate in rates.items() if rate.mean > 0)
    # The fewer the windows of a size, the less they say themselves how noisy they are: a single one counts half.
    precisions = [1 / (_INEXACT**2 + noise**2 * (1 + 1 / rate.weight) / rate.weight) for _, rate in known]
    total = sum(precisions)
    shapes = _shapes(known[0][0], known[-1][0])
    columns = [
        [math.log(rate.mean / size) + math.log(_drag(size, *shape)) for _, *shape in shapes] for size, rate in known
    ]
    tried: list[tuple[float, tuple[float, float, float, float]]] = []
    for (prior, knee, sharpness, crowd), levels in zip(shapes, zip(*columns, strict=True), strict=True):
        level = sum(map(mul, levels, precisions)) / total
        error = sum(precision * (value - level) ** 2 for value, precision in zip(levels, precisions, strict=True))
        tried.append((math.log(prior) - error / 2, (level, knee, sharpness, crowd)))
    return Fit(_weighed(tried))


def _shapes(smallest: int, largest: int) -> list[tuple[float, float, float, float]]:
    """Return how likely each shape is beforehand, its knee, its sharpness and its crowd."""
    left = 1 - _UNBOUNDED
    knees = _ladder(smallest / 4, 8 * largest, _FINE)
    each = left * (1 - _CROWDED) / (len(knees) * len(_SHARPNESS))
    shapes = [(each, knee, sharpness, math.inf) for knee in knees for sharpness in _SHARPNESS]
    knees, crowds = _ladder(smallest / 4, 8 * largest, _COARSE), _ladder(smallest / 2, 4 * largest, _CROWD_STEP)
    each = left * _CROWDED / (len(knees) * len(crowds))
    shapes += [(each, knee, 1.0, crowd) for knee in knees for crowd in crowds]
    return [*shapes, (_UNBOUNDED, math.inf, 1.0, math.inf)]


def _ladder(low: float, high: float, step: float) -> list[float]:
    return [low * step**rung for rung in range(math.ceil(math.log(high / low, step)) + 1)]


def _weighed(tried: list[tuple[float, tuple[float, float, float, float]]]) -> tuple[Curve, ...]:
    least = max(likelihood for likelihood, _ in tried) + math.log(_NEGLIGIBLE)
    kept = [(math.exp(likelihood - least), curve) for likelihood, curve in tried if likelihood >= least]
    total = sum(weight for weight, _ in kept)
    return tuple(Curve(weight / total, *curve) for weight, curve in kept)


def _drag(size: int, knee: float, sharpness: float, crowd: float) -> float:
    """Return how many times longer a sample takes than for a member alone: what is shared, and the communication."""
    shared = 1 + size / knee if sharpness == 1 else math.pow(1 + math.pow(size / knee, sharpness), 1 / sharpness)
    return shared + (size / crowd) ** 2
