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

from msgspec.structs import replace

from elasticjob_master.core.autoscale.scaling_memory import (
    Inheritance,
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


def begin_search(
    memory: ScalingMemory,
    size: int,
    *,
    rates: Mapping[int, MeasuredRate] | None = None,
    most_plans: int = THRESHOLDS.search_plans,
) -> ScalingMemory:
    """Return the memory at the beginning of a search at a size.

    Args:
        memory: the memory before.
        size: the size with which the search begins.
        rates: the rates that still hold; by default all of them.
        most_plans: see `SizeSearch`.
    """
    search = SizeSearch(
        requested_size=size,
        most_plans=most_plans,
        settled_rate=memory.search.settled_rate,
        needed_rate=memory.search.needed_rate,
        objective_key=memory.search.objective_key,
        unchanged_searches=memory.search.unchanged_searches,
    )
    kept = memory.rates.by_size if rates is None else rates
    memory = memory.with_rates(by_size=kept, strays=())
    return replace(memory, search=search, inheritance=Inheritance())


def adjusted_to(memory: ScalingMemory, *, size: int, setting: str) -> ScalingMemory:
    """Return the memory for the present size and setting.

    If another actor changed one of them, a search begins. The rates of another setting are dropped,
    except after a change by the auto-scaler itself: a trial of the servers measures the present
    size again, and taking back what did not help affects no rate.
    """
    if setting != memory.rates.setting:
        trial = memory.servers.trial
        rates = dict(memory.rates.by_size)
        if trial is not None and trial.size == size:
            rates.pop(size, None)
            memory = memory.with_rates(by_size=rates)
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
        memory = memory.with_rates(rescale_costs=costs[-THRESHOLDS.rescale_costs :])
    if measured.spread * math.sqrt(measured.part) > memory.rates.noise:
        rates = _with_deviation(memory.rates, measured.spread**2 * measured.part)
        memory = replace(memory, rates=rates)
    known = memory.rates.by_size.get(size)
    settled = memory.search.settled_size == size
    if measured.rises and not settled:
        latest = MeasuredRate(measured.rate, measured.part, measured.at)
        return memory.with_rates(by_size={**memory.rates.by_size, size: latest}, strays=())
    if known is not None and known.mean > 0:
        strays_before = memory.rates.strays
        strays = _strays(memory, known.mean, measured.rate, settled=settled)
        memory = memory.with_rates(strays=strays)
        if strays:
            faster = measured.rate > known.mean
            if len(strays) < _drift_windows(memory.search, faster=faster, settled=settled):
                return memory
            return _after_drift(memory, size, measured)
        rates = memory.rates
        if len(strays_before) == 1:  # that window was noise, not a change
            rates = _with_repeat(rates, known, Measurement(strays_before[0]))
        memory = replace(memory, rates=_with_repeat(rates, known, measured))
    return memory.with_rates(by_size=_with_window(memory.rates, size, measured, settled=settled))


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
    origin = memory.search.drifted_from
    unchanged = memory.search.unchanged_searches
    if origin is not None:
        same = abs(size / origin - 1) <= THRESHOLDS.same_size
        unchanged = unchanged + 1 if same else 0
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


def _with_window(
    rates: MeasuredRates, size: int, measured: Measurement, *, settled: bool
) -> dict[int, MeasuredRate]:
    """Return the rates by size with one more window; the size measured longest ago is dropped."""
    by_size = dict(rates.by_size)
    known = by_size.pop(size, None)
    new = MeasuredRate(measured.rate, measured.part, measured.at)
    if known is not None:
        most = THRESHOLDS.settled_mean_windows if settled else THRESHOLDS.mean_windows
        before = min(known.weight, most - measured.part)
        total = before + measured.part
        mean = (known.mean * before + measured.rate * measured.part) / total
        new = MeasuredRate(mean, total, measured.at)
    by_size[size] = new
    for oldest in list(by_size)[: -THRESHOLDS.stored_sizes]:
        del by_size[oldest]
    return by_size


def _strays(memory: ScalingMemory, mean: float, rate: float, *, settled: bool) -> tuple[float, ...]:
    """Return the consecutive rates that are too far from the mean, all above or all below it."""
    least = THRESHOLDS.drift_noises * memory.rates.noise
    difference = rate / mean - 1
    strays = abs(difference) > max(THRESHOLDS.drift, least)
    if settled and memory.search.settled_rate > 0:
        since_settled = rate / memory.search.settled_rate - 1
        if abs(since_settled) > max(THRESHOLDS.slow_drift, least):
            difference = since_settled
            strays = True
    if not strays:
        return ()
    before = memory.rates.strays
    same_side = all((stray > mean) == (difference > 0) for stray in before)
    return (*before, rate) if same_side else (rate,)


def _drift_windows(search: SizeSearch, *, faster: bool, settled: bool) -> int:
    """Return how many windows in a row must stray until another search begins.

    The wait doubles with each search that changed nothing: a throughput that changes by day and
    night is not searched for every day.
    """
    if not settled:
        return THRESHOLDS.drift_windows_in_search
    windows = THRESHOLDS.faster_windows if faster else THRESHOLDS.slower_windows
    doublings: int = min(search.unchanged_searches, THRESHOLDS.drift_doublings)
    return windows << doublings


def _after_drift(memory: ScalingMemory, size: int, measured: Measurement) -> ScalingMemory:
    """Return the memory after the throughput of the present size has changed for good."""
    strays = memory.rates.strays
    new = MeasuredRate(fmean(strays), len(strays), measured.at)
    memory = begin_search(memory, size, rates={size: new}, most_plans=THRESHOLDS.later_search_plans)
    return memory.with_search(drifted_from=size)


def _with_repeat(rates: MeasuredRates, known: MeasuredRate, measured: Measurement) -> MeasuredRates:
    """Return the rates with the noise that a repeated window shows."""
    # The difference from a mean of w windows has (w + 1) / w times the variance of one window.
    weight = known.weight * measured.part / (known.weight + measured.part)
    return _with_deviation(rates, (measured.rate / known.mean - 1) ** 2 * weight)


def _with_deviation(rates: MeasuredRates, square: float) -> MeasuredRates:
    """Return the rates with one more observation of a window's relative variance."""
    counted = THRESHOLDS.usual_noise_repeats + min(rates.repeats, THRESHOLDS.noise_repeats)
    noise = math.sqrt((rates.noise**2 * counted + square) / (counted + 1))
    return replace(rates, noise=noise, repeats=rates.repeats + 1)
