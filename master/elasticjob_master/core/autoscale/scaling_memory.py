"""The state that the auto-scaler keeps across worlds and restarts of the master, and how a measurement changes it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, median

import msgspec
from msgspec.structs import replace

MOST_SIZES = 32
"""Sizes whose rates are kept; the one measured longest ago is dropped first."""
_MOST_WINDOWS = 8.0
"""A rate counts as the mean of at most so many windows, so that newer ones weigh more."""
_USUAL_NOISE = 0.02
_NOISE_WINDOWS = (2, 30)
"""How many repetitions the usual noise counts as, and at most how many of the measured ones count."""
_DRIFT = 0.15
_DRIFT_NOISES = 4.0
_DRIFT_WINDOWS = 3
_COSTS = 5
_UNKNOWN_COST = 30.0


@dataclass(frozen=True)
class MeasuredRate:
    """Samples a second at one size: the mean of the windows measured there.

    Attributes:
        weight: the number of windows it is the mean of.
    """

    mean: float
    weight: float = 1.0

    def with_window(self, rate: float) -> MeasuredRate:
        """Return the mean with one more window."""
        before = min(self.weight, _MOST_WINDOWS - 1)
        return MeasuredRate((self.mean * before + rate) / (before + 1), before + 1)


class RolePeaks(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the members of a role have needed at most since the job began, and what was taken from them.

    Attributes:
        cpu: most cores that any member used at any look.
        memory: most bytes.
        since: of the first look, in seconds since the epoch.
        lowered_at: when CPU or memory were lowered last, in seconds since the epoch.
        before: cores and bytes that each member had before the first lowering; None: nothing is lowered.
        kept: a lowering was wrong once; there is no other one.
    """

    cpu: float = 0.0
    memory: int = 0
    since: float = 0.0
    lowered_at: float = 0.0
    before: tuple[float, int] | None = None
    kept: bool = False


class ScalingMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of the state. A "search" for the best size goes on until it settles. The fields are stored under their names.

    Attributes:
        rates: samples a second by size, the mean of the windows measured there; the size measured last comes last.
        weights: the number of windows that each of the rates stands for; 1 where it is missing.
        setting: what else the rates depend on, such as the parameter servers' CPU.
        asked: the size that the auto-scaler requested last, or that the job had when the search began.
        settled: the size found; None while the search goes on.
        reference: the rate of the settled size, from its first windows.
        strays: the latest consecutive rates of the settled size that are far from the reference.
        noise: standard deviation of repeated windows relative to the rate, from `repeats` of them.
        heading: 1 if the search went up last, -1 if down; at its beginning, the direction in which to go first; 0: any.
        turned: the search has changed its direction; it does so only once.
        moves: the number of plans made in this search.
        costs: seconds of training that the last rescales have cost.
        had: the size reached when a plan did not get all its pods; no larger one is requested before `retry_at`.
        retry_at: in seconds since the epoch.
        pause: the last pause before `retry_at`, in seconds; it doubles every time.
        relieved: the size, and its rate, at which parameter servers last got more CPU.
        resources_at: when CPU and memory may be changed again after a failed plan, in seconds since the epoch.
        peaks: by role, what its members have needed at most.
        judged: the number of the latest plan whose end has been processed.
    """

    rates: Mapping[int, float] = {}
    weights: Mapping[int, float] = {}
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
    peaks: Mapping[str, RolePeaks] = {}
    judged: int = 0

    @property
    def cost(self) -> float:
        """Seconds of training that a rescale costs."""
        return median(self.costs) if self.costs else _UNKNOWN_COST

    def rate(self, size: int) -> MeasuredRate:
        """Return what was measured at a size that is one of `rates`."""
        return MeasuredRate(self.rates[size], self.weights.get(size, 1.0))

    def measured_rates(self) -> dict[int, MeasuredRate]:
        """Return what was measured, by size; the one measured last is the last."""
        return {size: self.rate(size) for size in self.rates}

    def with_rates(self, rates: Mapping[int, MeasuredRate]) -> ScalingMemory:
        """Return the memory with these rates in place of its own."""
        means = {size: rate.mean for size, rate in rates.items()}
        return replace(self, rates=means, weights={size: rate.weight for size, rate in rates.items()})


@dataclass(frozen=True)
class Measurement:
    """The result of one window: samples per second, and the seconds that the rescale before it, if any, has cost."""

    rate: float
    rescale_seconds: float | None = None


def begin_search(memory: ScalingMemory, size: int, *, heading: int = 0) -> ScalingMemory:
    """Return the memory at the beginning of a search that starts from a size."""
    return replace(memory, asked=size, settled=None, strays=(), heading=heading, turned=False, moves=0)


def adjusted_to(memory: ScalingMemory, *, size: int, setting: str) -> ScalingMemory:
    """Return the memory for the present size and setting; if others have changed one of them, a new search begins.

    The rates of another setting are dropped. If the servers got more CPU at this size, the new search goes up first.
    """
    if setting != memory.setting:
        heading = 1 if memory.relieved is not None and memory.relieved[0] == size else 0
        memory = begin_search(replace(memory.with_rates({}), setting=setting), size, heading=heading)
    if memory.asked is not None and size != memory.asked:
        memory = begin_search(memory, size)
    return memory if memory.asked is not None else replace(memory, asked=size)


def with_measurement(memory: ScalingMemory, size: int, measured: Measurement) -> ScalingMemory:
    """Return the memory with one more measurement of a size."""
    rate, known = measured.rate, memory.rate(size) if size in memory.rates else None
    if measured.rescale_seconds is not None:
        memory = replace(memory, costs=(*memory.costs, measured.rescale_seconds)[-_COSTS:])
    if known is not None and memory.settled == size and memory.reference > 0:
        memory = _with_drift(memory, rate)
        if len(memory.strays) == _DRIFT_WINDOWS:
            new = MeasuredRate(fmean(memory.strays), _DRIFT_WINDOWS)
            heading = 1 if new.mean > memory.reference else -1
            return begin_search(memory.with_rates({size: new}), size, heading=heading)
        if memory.strays:
            return memory
    if known is not None:
        memory = _with_noise(memory, known, rate)
    rates = memory.measured_rates()
    rates.pop(size, None)
    rates[size] = known.with_window(rate) if known is not None else MeasuredRate(rate)
    for oldest in list(rates)[:-MOST_SIZES]:
        del rates[oldest]
    if memory.settled == size and known is not None and known.weight < _MOST_WINDOWS:
        memory = replace(memory, reference=rates[size].mean)
    return memory.with_rates(rates)


def _with_drift(memory: ScalingMemory, rate: float) -> ScalingMemory:
    """Collect consecutive rates that are too far from the settled size's reference, all above or all below it."""
    difference = rate / memory.reference - 1
    if abs(difference) <= max(_DRIFT, _DRIFT_NOISES * memory.noise):
        return replace(memory, strays=())
    same = all((stray > memory.reference) == (difference > 0) for stray in memory.strays)
    return replace(memory, strays=(*memory.strays, rate) if same else (rate,))


def _with_noise(memory: ScalingMemory, known: MeasuredRate, rate: float) -> ScalingMemory:
    # The difference from a mean of w windows has (w + 1) / w times the variance of one window.
    square = (rate / known.mean - 1) ** 2 * known.weight / (known.weight + 1) if known.mean > 0 else 0.0
    prior, most = _NOISE_WINDOWS
    counted = prior + min(memory.repeats, most)
    noise = math.sqrt((memory.noise**2 * counted + square) / (counted + 1))
    return replace(memory, noise=noise, repeats=memory.repeats + 1)
