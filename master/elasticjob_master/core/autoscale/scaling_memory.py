"""What the auto-scaler remembers over worlds and restarts, and how a new measurement changes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean, median

MOST_SIZES = 32
"""Sizes that are remembered; the one measured longest ago is forgotten first."""
_MOST_WINDOWS = 8.0
"""A rate stands for at most so many windows, so that newer ones count more."""
_USUAL_NOISE = 0.02
_NOISE_WINDOWS = (2, 30)
"""For how many repetitions the usual noise stands, and how many are remembered."""
_DRIFT = 0.15
_DRIFT_NOISES = 4.0
_DRIFT_WINDOWS = 3
_COSTS = 5
_UNKNOWN_COST = 30.0


@dataclass(frozen=True)
class MeasuredRate:
    """Samples a second at one size: the mean of the windows measured there.

    Attributes:
        weight: how many windows it stands for.
    """

    mean: float
    weight: float = 1.0

    def with_window(self, rate: float) -> MeasuredRate:
        """Return the mean with one window more."""
        before = min(self.weight, _MOST_WINDOWS - 1)
        return MeasuredRate((self.mean * before + rate) / (before + 1), before + 1)


@dataclass(frozen=True)
class ScalingMemory:
    """All of it. A "question" is the search for the best size, from its beginning until it settles.

    Attributes:
        rates: by size; the one measured last is the last.
        setting: what else the rates depend on, such as the parameter servers' CPU.
        asked: the size the auto-scaler asked for last, or found when the question began.
        settled: the answer; None while it is looked for.
        reference: the rate at which it settled, by the first windows there.
        strays: rates measured since then, in a row, that are far from the reference.
        noise: how far repeated windows lie apart, as a part of the rate; `repeats` of them have told.
        heading: 1 if the search went up last, -1 if down; at its beginning, where it shall go first.
        turned: it has changed its direction already; it does not do so again.
        moves: plans made for this question.
        costs: the seconds that the last rescales have cost.
        had: the size at which a plan could not get more pods; larger ones are not asked for before `retry_at`.
        pause: how long `retry_at` was put off; it doubles.
        relieved: the size, and its rate, at which servers were given more CPU last.
        resources_at: when CPU and memory may be changed again, after a plan for them has failed.
        judged: number of the last plan whose end is known.
    """

    rates: Mapping[int, MeasuredRate] = field(default_factory=dict)
    setting: str = ""
    asked: int | None = None
    settled: int | None = None
    reference: float = 0.0
    strays: tuple[float, ...] = ()
    noise: float = _USUAL_NOISE
    repeats: int = 0
    heading: int = 0
    turned: bool = False
    moves: int = 0
    costs: tuple[float, ...] = ()
    had: int | None = None
    retry_at: float = 0.0
    pause: float = 0.0
    relieved: tuple[int, float] | None = None
    resources_at: float = 0.0
    judged: int = 0

    @property
    def cost(self) -> float:
        """The seconds of training that a rescale costs."""
        return median(self.costs) if self.costs else _UNKNOWN_COST


@dataclass(frozen=True)
class Measurement:
    """One window: samples a second, and what the rescale before it has cost, if there was one."""

    rate: float
    rescale_seconds: float | None = None


def begin_search(memory: ScalingMemory, size: int, *, heading: int = 0) -> ScalingMemory:
    """Return the memory at the beginning of a new search that starts from a size."""
    return replace(memory, asked=size, settled=None, strays=(), heading=heading, turned=False, moves=0)


def adjusted_to(memory: ScalingMemory, *, size: int, setting: str) -> ScalingMemory:
    """Return the memory for a size and setting as they are; if somebody else has changed them, the search begins anew.

    Another setting makes the old rates worthless. Servers that got more CPU at this size were what held it up: so up.
    """
    if setting != memory.setting:
        heading = 1 if memory.relieved is not None and memory.relieved[0] == size else 0
        memory = begin_search(replace(memory, rates={}, setting=setting), size, heading=heading)
    if memory.asked is not None and size != memory.asked:
        memory = begin_search(memory, size)
    return memory if memory.asked is not None else replace(memory, asked=size)


def with_measurement(memory: ScalingMemory, size: int, measured: Measurement) -> ScalingMemory:
    """Return the memory with one window more at a size."""
    rate, known = measured.rate, memory.rates.get(size)
    if measured.rescale_seconds is not None:
        memory = replace(memory, costs=(*memory.costs, measured.rescale_seconds)[-_COSTS:])
    if known is not None and memory.settled == size and memory.reference > 0:
        memory = _watch(memory, rate)
        if len(memory.strays) == _DRIFT_WINDOWS:
            new = MeasuredRate(fmean(memory.strays), _DRIFT_WINDOWS)
            heading = 1 if new.mean > memory.reference else -1
            return begin_search(replace(memory, rates={size: new}), size, heading=heading)
        if memory.strays:
            return memory
    if known is not None:
        memory = _with_noise(memory, known, rate)
    rates = {n: r for n, r in memory.rates.items() if n != size}
    rates[size] = known.with_window(rate) if known is not None else MeasuredRate(rate)
    for oldest in list(rates)[:-MOST_SIZES]:
        del rates[oldest]
    if memory.settled == size and known is not None and known.weight < _MOST_WINDOWS:
        memory = replace(memory, reference=rates[size].mean)
    return replace(memory, rates=rates)


def _watch(memory: ScalingMemory, rate: float) -> ScalingMemory:
    """Count windows in a row that are, all to the same side, too far from the rate at which the search settled."""
    away = rate / memory.reference - 1
    if abs(away) <= max(_DRIFT, _DRIFT_NOISES * memory.noise):
        return replace(memory, strays=())
    same = all((stray > memory.reference) == (away > 0) for stray in memory.strays)
    return replace(memory, strays=(*memory.strays, rate) if same else (rate,))


def _with_noise(memory: ScalingMemory, known: MeasuredRate, rate: float) -> ScalingMemory:
    # The difference to a mean of w windows has (w + 1) / w times the variance of one window.
    square = (rate / known.mean - 1) ** 2 * known.weight / (known.weight + 1) if known.mean > 0 else 0.0
    prior, most = _NOISE_WINDOWS
    counted = prior + min(memory.repeats, most)
    noise = math.sqrt((memory.noise**2 * counted + square) / (counted + 1))
    return replace(memory, noise=noise, repeats=memory.repeats + 1)
