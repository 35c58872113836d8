"""Applies a measurement to the memory, and decides when another search begins.

A search begins when another actor changes the size or the setting, and when the throughput changes
for good. Single windows that stray are noise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import fmean

from elasticjob_api.job_policies import Autoscaling
from msgspec.structs import replace

from elasticjob_master.core.autoscale.scaling_memory import (
    MeasuredRate,
    MeasuredRates,
    NodeSize,
    ScalingMemory,
    SizeSearch,
)
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


@dataclass(frozen=True)
class Measurement:
    """The result of one window.

    Attributes:
        rate: samples per second.
        rescale_seconds: the cost of the rescale before the window, if there was one.
        part: the part of a window that was measured, up to 1.
        at: the time, in seconds since the epoch; 0 if unknown.
        spread: the standard error of the rate, relative to it, by its variation within the window;
            0 if unknown.
        rises: the rate still rises since the world began, so this is no mean of later windows.
    """

    rate: float
    rescale_seconds: float | None = None
    part: float = 1.0
    at: float = 0.0
    spread: float = 0.0
    rises: bool = False
    window_seconds: float = Autoscaling().cooldown_seconds


def begin_search(
    memory: ScalingMemory,
    size: int,
    *,
    rates: Mapping[int, MeasuredRate] | None = None,
    most_plans: int = THRESHOLDS.search_plans,
) -> ScalingMemory:
    """Return the memory at the beginning of a search at a size.

    The rates that still hold are all of them by default; `most_plans`: see `SizeSearch`.
    """
    before = memory.search
    search = SizeSearch(
        requested_size=size,
        most_plans=most_plans,
        settled_rate=before.settled_rate,
        needed_rate=before.needed_rate,
        objective_key=before.objective_key,
        unchanged_searches=before.unchanged_searches,
    )
    kept = memory.rates.by_size if rates is None else rates
    memory = memory.with_rates(by_size=kept, strays=())
    return replace(memory, search=search)


def adjusted_to(memory: ScalingMemory, *, size: int, setting: str) -> ScalingMemory:
    """Return the memory for the present size and setting.

    If another actor changed one of them, a search begins. The rates of another setting are dropped,
    except after a change by the auto-scaler itself: a trial of the servers measures the present
    size again, and taking back what did not help affects no rate.
    """
    if setting != memory.rates.setting:
        trial = memory.servers.trial
        if trial is not None and trial.size == size:
            others = {n: rate for n, rate in memory.rates.by_size.items() if n != size}
            memory = memory.with_rates(by_size=others)
        elif not memory.servers.rates_stay_valid:
            memory = begin_search(memory, size, rates={})
        memory = memory.with_rates(setting=setting).with_servers(rates_stay_valid=False)
    requested = memory.search.requested_size
    if requested is None:
        return memory.with_search(requested_size=size)
    return memory if size == requested else begin_search(memory, size)


def with_measurement(memory: ScalingMemory, size: int, measured: Measurement) -> ScalingMemory:
    """Return the memory with one more measurement of a size."""
    if measured.rescale_seconds is not None:
        costs = (*memory.rates.rescale_costs, measured.rescale_seconds)
        memory = memory.with_rates(rescale_costs=costs[-THRESHOLDS.stored :])
    within = measured.spread**2 * measured.part
    if within > memory.rates.noise**2:
        memory = replace(memory, rates=_with_deviation(memory.rates, within))
    known = memory.rates.by_size.get(size)
    # A rate of an earlier job does not hold longer than one of this job that is as short.
    settled = memory.search.settled_size == size and known is not None and known.weight > 1
    if measured.rises and not settled:
        known = None  # what was measured before was still slower
    elif known is not None and known.mean > 0:
        before = memory.rates.strays
        strays = _strays(memory.rates, known.mean, measured.rate)
        memory = memory.with_rates(strays=strays)
        if strays:
            windows = THRESHOLDS.least_windows
            if settled:
                lasting = THRESHOLDS.lasting * THRESHOLDS.hour / measured.window_seconds
                # By waiting with a slower job only members are lost.
                windows = THRESHOLDS.most_windows if measured.rate > known.mean else lasting
                windows *= memory.search.patience
            if len(strays) < windows:
                return memory
            return _after_change(memory, size, measured.at)
        if len(before) == 1:  # that window was noise, not a change
            memory = _with_repeat(memory, known, Measurement(before[0]))
        memory = _with_repeat(memory, known, measured)
    kept = {n: rate for n, rate in memory.rates.by_size.items() if n != size}
    by_size = {**kept, size: _averaged(known, measured)}
    latest = list(by_size.items())[-THRESHOLDS.stored :]
    return memory.with_rates(by_size=dict(latest))


def with_nodes(memory: ScalingMemory, names: Collection[str]) -> ScalingMemory:
    """Return the memory with what the nodes of the scaled role's members show of their size.

    Args:
        memory: the memory before.
        names: the name of each member's node; empty if unknown.
    """
    if not names or "" in names:
        return memory
    seen = Counter(names)
    before = memory.rates.node
    most = max(seen.values())
    is_full = len(seen) > 1 or (before.is_full and before.members >= most)
    return memory.with_rates(node=NodeSize(max(most, before.members), is_full))


def without_rates_since(memory: ScalingMemory, since: float, size: int) -> ScalingMemory:
    """Return the memory without the rates measured after a time; without these a search begins."""
    rates = memory.rates.by_size
    before = {n: rate for n, rate in rates.items() if rate.at < since}
    return memory if len(before) == len(rates) else begin_search(memory, size, rates=before)


def with_settled(
    memory: ScalingMemory, size: int, *, at_maximum: bool = False, needed: float | None = None
) -> ScalingMemory:
    """Return the memory after a search has settled at a measured size; see `SizeSearch`."""
    search = memory.search
    unchanged = search.unchanged_searches
    if search.drifted_from is not None:
        unchanged = unchanged + 1 if size == search.drifted_from else 0
    memory = memory.with_search(
        settled_size=size,
        at_maximum=at_maximum,
        settled_rate=memory.rates.mean(size),
        needed_rate=needed or 0.0,
        settled_windows=0,
        drifted_from=None,
        unchanged_searches=unchanged,
    )
    return memory.with_rates(strays=())


def _averaged(known: MeasuredRate | None, measured: Measurement) -> MeasuredRate:
    """Return the rate of a size with one more window."""
    if known is None:
        return MeasuredRate(measured.rate, measured.part, measured.at)
    before = min(known.weight, THRESHOLDS.most_windows - measured.part)
    total = before + measured.part
    mean = (known.mean * before + measured.rate * measured.part) / total
    return MeasuredRate(mean, total, measured.at)


def _strays(rates: MeasuredRates, mean: float, rate: float) -> tuple[float, ...]:
    """Return the consecutive rates that are too far from the mean, all above or all below it."""
    if abs(rate / mean - 1) <= max(THRESHOLDS.worthwhile, THRESHOLDS.noises * rates.noise):
        return ()
    same_side = all((stray > mean) == (rate > mean) for stray in rates.strays)
    return (*rates.strays, rate) if same_side else (rate,)


def _after_change(memory: ScalingMemory, size: int, at: float) -> ScalingMemory:
    """Return the memory after the throughput of the present size has changed for good."""
    strays = memory.rates.strays
    rates = {size: MeasuredRate(fmean(strays), len(strays), at)}
    memory = begin_search(memory, size, rates=rates, most_plans=THRESHOLDS.search_plans // 2)
    return memory.with_search(drifted_from=size)


def _with_repeat(
    memory: ScalingMemory, known: MeasuredRate, measured: Measurement
) -> ScalingMemory:
    """Return the memory with the noise that a repeated window shows."""
    # The difference from a mean of w windows has (w + 1) / w times the variance of one window.
    weight = known.weight * measured.part / (known.weight + measured.part)
    square = (measured.rate / known.mean - 1) ** 2 * weight
    return replace(memory, rates=_with_deviation(memory.rates, square))


def _with_deviation(rates: MeasuredRates, square: float) -> MeasuredRates:
    """Return the rates with one more observation of a window's relative variance."""
    counted = THRESHOLDS.least_windows + rates.repeats
    noise = math.sqrt((rates.noise**2 * counted + square) / (counted + 1))
    return replace(rates, noise=noise, repeats=rates.repeats + 1)
