"""The model of the throughput: which shapes the measurements allow, and what they say of each size.

The logarithm of the rate at a size is that of a shape, plus a level, plus a deviation of this very
size and of its neighbours (a Gaussian process), plus the error of the measurement. So a measured
size is what was measured there, however the curve runs, and a size nearby is like it. The level and
the deviations are integrated out exactly for each shape. Real curves are rougher than formulas, so
two degrees of roughness compete. The likelihood has heavy tails (Student's t): where no shape fits,
all of them are doubted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul

from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.core.autoscale.scaling_memory import (
    UNKNOWN_NODE,
    MeasuredRate,
    NodeSize,
)
from elasticjob_master.core.autoscale.shapes import log_rates
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS

_LEVEL = 25.0
"""The variance of the level, which is unknown: it is far larger than any other one."""
_TINY = 1e-10
Vector = list[float]
Roughness = tuple[float, float, float]


@dataclass(frozen=True)
class Gain:
    """What a size is worth more than another one, in the logarithm of the objective.

    Attributes:
        gain: the expected gain, as far as it is one: the size is left again if it is none.
        loss: the expected loss while it is looked at.
        likelihood: that of a gain.
        spread: the root of the mean square of the difference.
    """

    gain: float
    loss: float
    likelihood: float
    spread: float


@dataclass(frozen=True)
class _Part:
    """The posterior with one degree of roughness.

    Attributes:
        weights: the likelihoods of the shapes that are kept; all parts together sum up to 1.
        means: the expected logarithm of the rate by size, for each of these shapes.
        roughness: see `Thresholds`.
        halves: the part of the covariance of each size that the measurements explain, as a root.
    """

    weights: Vector
    means: Mapping[int, Vector]
    roughness: Roughness
    halves: Mapping[int, Vector]

    def covariance(self, first: int, second: int) -> float:
        """Return that of the logarithms of the rates at two sizes; every shape has the same."""
        explained: float = sum(map(mul, self.halves[first], self.halves[second]))
        return _kernel(self.roughness, first, second) - explained


@dataclass(frozen=True)
class Posterior:
    """What the measurements say of some sizes."""

    parts: tuple[_Part, ...]

    def rate(self, size: int) -> float:
        """Return the expected samples per second."""
        return math.exp(sum(sum(map(mul, part.weights, part.means[size])) for part in self.parts))

    def worth(self, size: int, objective: Objective) -> float:
        """Return what a size is expected to be worth."""
        return sum(
            sum(map(mul, part.weights, objective.worths(part.means[size], size)))
            for part in self.parts
        )

    def band(self, size: int, low: float, high: float) -> tuple[float, float]:
        """Return the rates below which the truth is with these two likelihoods."""
        points = []
        for part in self.parts:
            root = math.sqrt(max(_TINY, part.covariance(size, size)))
            points += [
                (mean + deviation * root, weight * each)
                for mean, weight in zip(part.means[size], part.weights, strict=True)
                for deviation, each in _NORMAL
            ]
        points.sort()
        ends = []
        for likelihood in (low, high):
            below = 0.0
            end = points[-1][0]
            for value, weight in points:
                below += weight
                if below >= likelihood:
                    end = value
                    break
            ends.append(math.exp(end))
        return ends[0], ends[1]

    def gain(self, size: int, other: int, objective: Objective, bonus: float = 0.0) -> Gain:
        """Return what a size is worth more than another one. `bonus` is added to the difference."""
        gain = mean = likelihood = square = 0.0
        for part in self.parts:
            known = part.covariance
            variance = known(size, size) + known(other, other) - 2 * known(size, other)
            deviation = math.sqrt(max(_TINY, variance))
            scale = 1 / (deviation * _ROOT_2)
            first = objective.worths(part.means[size], size)
            second = objective.worths(part.means[other], other)
            density = 0.0
            for weight, left, right in zip(part.weights, first, second, strict=True):
                difference = left - right + bonus
                score = difference * scale
                above = weight * math.erfc(-score)
                weighted = weight * difference
                gain += difference * above
                density += weight * math.exp(-score * score)
                mean += weighted
                likelihood += above
                square += weighted * difference
            gain += 2 * deviation * density / _ROOT_2_PI
            square += variance * sum(part.weights)
        gain /= 2
        return Gain(gain, gain - mean, likelihood / 2, math.sqrt(max(_TINY, square)))


_ROOT_2 = math.sqrt(2)
_ROOT_2_PI = math.sqrt(2 * math.pi)
_NORMAL = ((-1.645, 0.1), (-0.842, 0.2), (-0.253, 0.2), (0.253, 0.2), (0.842, 0.2), (1.645, 0.1))
"""A normal distribution as a few points with their likelihoods."""


def variance(rate: MeasuredRate, noise: float, now: float) -> float:
    """Return the variance of a rate as a measure of the present throughput, relative to it.

    Everything changes with time, so the error grows with age.
    """
    age = max(0.0, now - rate.at) / 3600 if rate.at else 0.0
    return noise * noise / rate.weight + (THRESHOLDS.minor * age) ** 2


def fit(
    rates: Mapping[int, MeasuredRate],
    noise: float,
    sizes: Sequence[int],
    node: NodeSize = UNKNOWN_NODE,
) -> Posterior:
    """Return what the measured rates say of some sizes.

    Args:
        rates: the rates by size, all of them positive; at least one.
        noise: the standard deviation of repeated windows, relative to the rate.
        sizes: what is asked for.
        node: where nodes end.
    """
    known = sorted(rates)
    latest = max(rate.at for rate in rates.values())
    errors = [variance(rates[size], noise, latest) for size in known]
    residuals = [
        [math.log(rates[size].mean) - value for value in log_rates(size, node)] for size in known
    ]
    fitted = [_weighed(roughness, known, errors, residuals) for roughness in THRESHOLDS.roughness]
    most = max(max(logs) for logs, _ in fitted)
    least = most - math.log(THRESHOLDS.shapes / 2)  # all the others together count less than two
    total = sum(sum(math.exp(each - most) for each in logs if each >= least) for logs, _ in fitted)
    parts = []
    for roughness, (logs, lower) in zip(THRESHOLDS.roughness, fitted, strict=True):
        kept = [number for number, each in enumerate(logs) if each >= least]
        weights = [math.exp(logs[number] - most) / total for number in kept]
        near = [[row[number] for number in kept] for row in residuals]
        priors = {size: log_rates(size, node) for size in sizes}
        parts.append(_predicted(roughness, known, lower, weights, kept, near, priors))
    return Posterior(tuple(parts))


def _kernel(roughness: Roughness, first: int, second: int) -> float:
    """Return the covariance of two sizes: of the level, neighbours and each size itself."""
    _, own, near = roughness
    distance = abs(math.log2(first / second))
    same = own * own if first == second else 0.0
    return _LEVEL + same + near * near * math.exp(-distance)


def _weighed(
    roughness: Roughness,
    known: Sequence[int],
    errors: Sequence[float],
    residuals: Sequence[Vector],
) -> tuple[Vector, list[Vector]]:
    """Return the logarithm of each shape's likelihood, and the covariance's triangular root."""
    lower: list[Vector] = []
    squares = [0.0] * len(residuals[0])
    scaled: list[Vector] = []
    logs = math.log(roughness[0])
    for row, size in enumerate(known):
        line: Vector = []
        for column in range(row):
            done = sum(map(mul, line, lower[column]))
            line.append((_kernel(roughness, size, known[column]) - done) / lower[column][column])
        own = _kernel(roughness, size, size) + errors[row] - sum(map(mul, line, line))
        root = math.sqrt(max(_TINY, own))
        values = list(residuals[row])
        for factor, before in zip(line, scaled, strict=True):
            values = [value - factor * each for value, each in zip(values, before, strict=True)]
        values = [value / root for value in values]
        squares = [square + value * value for square, value in zip(squares, values, strict=True)]
        scaled.append(values)
        line.append(root)
        lower.append(line)
        logs -= math.log(root)
    tails = THRESHOLDS.tails
    power = (tails + len(known) - 1) / 2
    return [logs - power * math.log1p(square / tails) for square in squares], lower


def _predicted(
    roughness: Roughness,
    known: Sequence[int],
    lower: Sequence[Vector],
    weights: Vector,
    kept: Sequence[int],
    residuals: Sequence[Vector],
    priors: Mapping[int, Sequence[float]],
) -> _Part:
    """Return what the kept shapes say of some sizes, whose rates by all shapes are given."""
    halves: dict[int, Vector] = {}
    means: dict[int, Vector] = {}
    for size, rates in priors.items():
        half: Vector = []
        for row, other in enumerate(known):
            done = sum(map(mul, half, lower[row]))
            half.append((_kernel(roughness, size, other) - done) / lower[row][row])
        halves[size] = half
        values = [rates[number] for number in kept]
        for factor, residual in zip(_solved(lower, half), residuals, strict=True):
            values = [value + factor * each for value, each in zip(values, residual, strict=True)]
        means[size] = values
    return _Part(weights, means, roughness, halves)


def _solved(lower: Sequence[Vector], half: Sequence[float]) -> Vector:
    """Solve the transposed triangular system."""
    found = list(half)
    for row in range(len(half) - 1, -1, -1):
        value = found[row]
        for below in range(row + 1, len(half)):
            value -= lower[below][row] * found[below]
        found[row] = value / lower[row][row]
    return found
