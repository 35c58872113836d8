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
"""How many repetitions the usual noise counts as, and at most how many of the measured ones count.
"""
_DRIFT = 0.15
_DRIFT_NOISES = 4.0
"""A window strays if it differs by so much, and by so many times the noise, from the mean of those
before.
"""
_LONG_DRIFT = 0.4
"""A settled size is left, too, when its rate has slowly changed by so much."""
_SLOWER_WINDOWS = 72
_FASTER_WINDOWS = 6
_DRIFT_WINDOWS_IN_SEARCH = 2
"""For how many windows in a row a settled size must stray: if it got slower, only members are lost
by waiting.
"""
_MOST_DOUBLINGS = 5
_SAME_SIZE = 0.1
"""How often that doubles, each time that a search ends where it began, give or take this part."""
_OLD_SECONDS = 900.0
_OLD_WEIGHT = 0.5
"""What was measured so long before a window counts as no more than this part of one beside it."""
_SETTLED_WINDOWS = 4.0
"""At a settled size the mean is that of so many windows, so that it follows a slow trend."""
_COSTS = 5
_UNKNOWN_COST = 30.0


@dataclass(frozen=True)
class Measurement:
    """The result of one window.

    Attributes:
        rate: samples per second.
        rescale_seconds: what the rescale before it, if any, has cost.
        part: the part of a window that was measured, up to 1.
        at: when, in seconds since the epoch; 0: not known.
        spread: the standard error of the rate, relative to it, by how much it varies in the window; 0: not known.
        first: it is the first window since the world or anything else has changed.
    """

    rate: float
    rescale_seconds: float | None = None
    part: float = 1.0
    at: float = 0.0
    spread: float = 0.0
    first: bool = False


@dataclass(frozen=True)
class MeasuredRate:
    """Samples a second at one size: the mean of the windows measured there.

    Attributes:
        weight: the number of windows it is the mean of; one that was not waited for counts as a part of a window.
        at: when it was last measured, in seconds since the epoch; 0: not known.
    """

    mean: float
    weight: float = 1.0
    at: float = 0.0

    def with_window(self, measured: Measurement, *, most: float = _MOST_WINDOWS) -> MeasuredRate:
        """Return the mean with one more window, in which the earlier ones count as at most so many."""
        old = self.at and measured.at - self.at > _OLD_SECONDS
        before = min(self.weight, _OLD_WEIGHT if old else most - measured.part)
        total = before + measured.part
        return MeasuredRate(
            (self.mean * before + measured.rate * measured.part) / total, total, measured.at
        )


class RolePeaks(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the members of a role have needed at most since the job began, and what was taken from them.

    Attributes:
        cpu: most cores that any member used at any look.
        steady: most cores that any member used on average in a window, without its warm-up; 0: not known.
        memory: most bytes.
        since: of the first look, in seconds since the epoch.
        lowered_at: when CPU or memory were lowered last, in seconds since the epoch.
        before: cores and bytes that each member had before the first lowering; None: nothing is lowered.
        kept: a lowering was wrong once; there is no other one.
        raised_to: bytes that each member got last, before it was killed for lack of memory; 0: never.
        roomy: there was a window since then in which no member was near that.
        filled: the program uses whatever memory it gets; it gets no more.
    """

    cpu: float = 0.0
    steady: float = 0.0
    memory: int = 0
    since: float = 0.0
    lowered_at: float = 0.0
    before: tuple[float, int] | None = None
    kept: bool = False
    raised_to: int = 0
    roomy: bool = False
    filled: bool = False


class Relief(msgspec.Struct, frozen=True, omit_defaults=True):
    """More CPU for parameter servers, or more of them, of which is not known yet whether it helps.

    Attributes:
        role: of the servers.
        size: the number of members of the scaled role.
        rate: samples a second before.
        before: the cores that each of these servers had.
        servers: how many there were, when there are more now; 0: they have got more CPU.
    """

    role: str
    size: int
    rate: float
    before: float
    servers: int = 0


class ExpectedRate(msgspec.Struct, frozen=True):
    """What an earlier job trained at the size with which this one has begun.

    Attributes:
        size: the number of members of the scaled role.
        rate: samples a second.
        job: its name.
        inherited: how many jobs in a row had taken this size over.
    """

    size: int
    rate: float
    job: str
    inherited: int = 0


class ScalingMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of the state. A "search" for the best size goes on until it settles.

    The fields are stored under their names.

    Attributes:
        rates: samples a second by size, the mean of the windows measured there; the size measured last comes last.
        weights: the number of windows that each of the rates stands for; 1 where it is missing.
        times: when each of the sizes was last measured, in seconds since the epoch.
        setting: what else the rates depend on, such as the parameter servers' CPU.
        asked: the size that the auto-scaler requested last, or that the job had when the search began.
        settled: the size found; None while the search goes on.
        bounded: it is the largest size that was allowed then; larger ones may be better.
        reference: the rate of the settled size, from its first windows.
        needed: the rate that the finish time needed when the search settled; 0: there was none.
        waited: for how many windows since then the size was looked at because of a finish time.
        objective: identifies what the size is chosen for; empty: it was not chosen yet.
        fresh: the present size was not measured before the job has it this time.
        strays: the latest consecutive rates of the present size that are far from those before.
        noise: standard deviation of repeated windows relative to the rate, from `repeats` of them.
        heading: 1 if the search went up last, -1 if down; at its beginning, the direction in which to go first; 0: any.
        turned: the search has changed its direction; it does so only once.
        moves: the number of plans made in this search.
        drifted_from: the size at which a change of the throughput began this search; None: something else did.
        fruitless: how many such searches in a row have ended where they began; each doubles the wait for the next one.
        costs: seconds of training that the last rescales have cost.
        had: the size reached when a plan did not get all its pods; no larger one is requested before `retry_at`.
        retry_at: in seconds since the epoch.
        pause: the last pause before `retry_at`, in seconds; it doubles every time.
        relief: more CPU for parameter servers, or more of them, that is to be judged.
        undoing: the setting is being changed by what no rate depends on: what servers had got is taken back, as it did
            not help, or roles get their first requests. The rates hold before and after it.
        useless: roles of servers that more CPU does not help.
        enough: roles of servers that more servers do not help.
        resources_at: when CPU and memory may be changed again after a failed plan, in seconds since the epoch.
        peaks: by role, what its members have needed at most.
        expected: what an earlier job trained at this size, to be compared with the first window.
        inherited: how many jobs in a row, with this one, have settled at a size without a search; 0: it was searched.
        judged: the number of the latest plan whose end has been processed.
    """

    rates: Mapping[int, float] = {}
    weights: Mapping[int, float] = {}
    times: Mapping[int, float] = {}
    setting: str = ""
    asked: int | None = None
    settled: int | None = None
    bounded: bool = False
    reference: float = 0.0
    needed: float = 0.0
    waited: int = 0
    objective: str = ""
    fresh: bool = False
    strays: tuple[float, ...] = ()
    noise: float = _USUAL_NOISE
    repeats: int = 0
    heading: int = 0
    turned: bool = False
    moves: int = 0
    drifted_from: int | None = None
    fruitless: int = 0
    costs: tuple[float, ...] = ()
    had: int | None = None
    retry_at: float = 0.0
    pause: float = 0.0
    relief: Relief | None = None
    undoing: bool = False
    useless: tuple[str, ...] = ()
    enough: tuple[str, ...] = ()
    resources_at: float = 0.0
    peaks: Mapping[str, RolePeaks] = {}
    expected: ExpectedRate | None = None
    inherited: int = 0
    judged: int = 0

    @property
    def cost(self) -> float:
        """Seconds of training that a rescale costs."""
        return median(self.costs) if self.costs else _UNKNOWN_COST

    def rate(self, size: int) -> MeasuredRate:
        """Return what was measured at a size that is one of `rates`."""
        return MeasuredRate(
            self.rates[size], self.weights.get(size, 1.0), self.times.get(size, 0.0)
        )

    def measured_rates(self) -> dict[int, MeasuredRate]:
        """Return what was measured, by size; the one measured last is the last."""
        return {size: self.rate(size) for size in self.rates}

    def with_rates(self, rates: Mapping[int, MeasuredRate]) -> ScalingMemory:
        """Return the memory with these rates in place of its own."""
        return replace(
            self,
            rates={size: rate.mean for size, rate in rates.items()},
            weights={size: rate.weight for size, rate in rates.items()},
            times={size: rate.at for size, rate in rates.items() if rate.at},
        )

    def with_role_peaks(self, role: str, peaks: RolePeaks) -> ScalingMemory:
        """Return the memory with these peaks of a role."""
        return replace(self, peaks={**self.peaks, role: peaks})


def begin_search(memory: ScalingMemory, size: int, *, heading: int = 0) -> ScalingMemory:
    """Return the memory at the beginning of a search that starts from a size."""
    fresh = replace(memory, asked=size, settled=None, strays=(), drifted_from=None)
    return replace(fresh, heading=heading, turned=False, moves=0, expected=None, inherited=0)


def adjusted_to(memory: ScalingMemory, *, size: int, setting: str) -> ScalingMemory:
    """Return the memory for the present size and setting.

    If others have changed one of them, a new search begins. The rates of another setting are
    dropped. After a change of the servers' CPU by the auto-scaler only that of the present size is,
    to be compared; after it was taken back, none.
    """
    if setting != memory.setting:
        rates = memory.measured_rates()
        if memory.relief is not None and memory.relief.size == size:
            rates.pop(size, None)
            memory = memory.with_rates(rates)
        elif not memory.undoing:
            memory = begin_search(memory.with_rates({}), size)
        memory = replace(memory, setting=setting, undoing=False)
    if memory.asked is not None and size != memory.asked:
        memory = begin_search(memory, size)
    return memory if memory.asked is not None else replace(memory, asked=size)


def with_measurement(memory: ScalingMemory, size: int, measured: Measurement) -> ScalingMemory:
    """Return the memory with one more measurement of a size.

    When the throughput has changed, a new search begins.
    """
    known = memory.rate(size) if size in memory.rates else None
    if measured.rescale_seconds is not None:
        memory = replace(memory, costs=(*memory.costs, measured.rescale_seconds)[-_COSTS:])
    settled = memory.settled == size
    if measured.first and memory.fresh != (known is None):
        memory = replace(memory, fresh=known is None)
    if measured.spread * math.sqrt(measured.part) > memory.noise:
        memory = _with_deviation(memory, measured.spread**2 * measured.part)
    if known is not None and known.mean > 0:
        before = memory.strays
        memory = _with_drift(memory, known.mean, measured.rate, settled=settled)
        if len(before) == 1 and not memory.strays:  # it was noise, not a change
            memory = _with_noise(memory, known, Measurement(before[0]))
        if len(memory.strays) >= _drift_windows(
            memory, faster=measured.rate > known.mean, settled=settled
        ):
            new = MeasuredRate(fmean(memory.strays), len(memory.strays), measured.at)
            if memory.fresh and not settled and new.mean > known.mean:
                # It was still warming up; that says nothing about the sizes before.
                return replace(memory.with_rates({**memory.measured_rates(), size: new}), strays=())
            heading = (1 if new.mean > known.mean else -1) if settled else 0
            memory = begin_search(memory.with_rates({size: new}), size, heading=heading)
            return replace(memory, drifted_from=size)
        if memory.strays:
            return memory
        memory = _with_noise(memory, known, measured)
    rates = memory.measured_rates()
    rates.pop(size, None)
    most = _SETTLED_WINDOWS if settled else _MOST_WINDOWS
    new = MeasuredRate(measured.rate, measured.part, measured.at)
    rates[size] = known.with_window(measured, most=most) if known is not None else new
    for oldest in list(rates)[:-MOST_SIZES]:
        del rates[oldest]
    return memory.with_rates(rates)


def without_rates_since(memory: ScalingMemory, since: float, size: int) -> ScalingMemory:
    """Return the memory without the rates measured after a moment.

    If there are any, a new search begins.
    """
    rates = memory.measured_rates()
    before = {at: rate for at, rate in rates.items() if rate.at < since}
    return memory if len(before) == len(rates) else begin_search(memory.with_rates(before), size)


def with_settled(
    memory: ScalingMemory, size: int, *, bounded: bool = False, needed: float | None = None
) -> ScalingMemory:
    """Return the memory when a search has settled at a size that was measured.

    See `ScalingMemory`.
    """
    origin = memory.drifted_from
    fruitless = memory.fruitless
    if origin is not None:
        fruitless = fruitless + 1 if abs(size / origin - 1) <= _SAME_SIZE else 0
    memory = replace(memory, drifted_from=None, fruitless=fruitless, needed=needed or 0.0, waited=0)
    return replace(memory, settled=size, bounded=bounded, reference=memory.rates[size], strays=())


def _drift_windows(memory: ScalingMemory, *, faster: bool, settled: bool) -> int:
    """Return how many windows in a row must stray for a new search."""
    if not settled:
        return _DRIFT_WINDOWS_IN_SEARCH
    # A throughput that changes again and again, as by day and night, is not searched for again and
    # again.
    return (_FASTER_WINDOWS if faster else _SLOWER_WINDOWS) << min(
        memory.fruitless, _MOST_DOUBLINGS
    )


def _with_drift(memory: ScalingMemory, mean: float, rate: float, *, settled: bool) -> ScalingMemory:
    """Collect consecutive rates that are too far from the mean of those before, all above or all below it."""
    difference = rate / mean - 1
    least = _DRIFT_NOISES * memory.noise
    strays = abs(difference) > max(_DRIFT, least)
    if (
        settled
        and memory.reference > 0
        and abs(rate / memory.reference - 1) > max(_LONG_DRIFT, least)
    ):
        strays = True
        difference = rate / memory.reference - 1
    if not strays:
        return replace(memory, strays=()) if memory.strays else memory
    same = all((stray > mean) == (difference > 0) for stray in memory.strays)
    return replace(memory, strays=(*memory.strays, rate) if same else (rate,))


def _with_noise(memory: ScalingMemory, known: MeasuredRate, measured: Measurement) -> ScalingMemory:
    # The difference from a mean of w windows has (w + 1) / w times the variance of one window.
    weight = known.weight * measured.part / (known.weight + measured.part)
    square = (measured.rate / known.mean - 1) ** 2 * weight
    return _with_deviation(memory, square)


def _with_deviation(memory: ScalingMemory, square: float) -> ScalingMemory:
    """Return the memory with one more observation of a window's relative variance."""
    prior, most = _NOISE_WINDOWS
    counted = prior + min(memory.repeats, most)
    noise = math.sqrt((memory.noise**2 * counted + square) / (counted + 1))
    return replace(memory, noise=noise, repeats=memory.repeats + 1)
