"""When a settled size is chosen again although the job has not changed.

The objective was changed, its finish time needs another size, or the size was the largest one
allowed and larger ones are allowed now. The search keeps what was measured, so it begins where the
measurements point to. Windows between two comparisons with the finish time are counted, not timed:
a clock that is set right costs at most two plans.
"""

from __future__ import annotations

import math
from statistics import fmean

from elasticjob_master.core.autoscale.candidate_sizes import twice
from elasticjob_master.core.autoscale.measurements import begin_search
from elasticjob_master.core.autoscale.scaling_memory import MeasuredRate, ScalingMemory
from elasticjob_master.core.autoscale.situation import Situation
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


def reopened(at: Situation) -> ScalingMemory:
    """Return the memory at the beginning of another search if there is a reason, else as it is."""
    memory = at.memory
    search = memory.search
    key = at.now.objective.key
    if search.objective_key != key:
        memory = memory.with_search(objective_key=key)
        return begin_search(memory, at.size) if search.objective_key else memory
    enough = at.now.objective.enough
    too_slow = enough is None or at.rate(at.size) < enough
    if search.at_maximum and search.settled_size == at.size < at.bounds.maximum and too_slow:
        return begin_search(memory, at.size)
    if search.settled_size is None or not at.now.window_is_over:
        return memory
    return _looks_again(at) if enough is None else _compared_with_finish_time(at)


def _looks_again(at: Situation) -> ScalingMemory:
    """Return the memory at the beginning of a look at a larger size, once the rest has paid for it.

    What gets better beyond the present size does not show there. Each wait is twice as long as the
    one before.
    """
    if twice(at.size, at.bounds) < THRESHOLDS.least_look * at.size:
        return at.memory  # so small a step shows nothing
    search = at.search
    windows = search.settled_windows + 1
    rest = 2 * at.memory.rates.rescale_seconds / THRESHOLDS.look_cost
    needed = max(THRESHOLDS.look_windows, rest / at.now.window_seconds)
    if windows < math.ldexp(needed, min(search.looks, THRESHOLDS.drift_doublings)):
        return at.memory.with_search(settled_windows=windows)
    # What was measured of larger sizes may not hold any more.
    rates = {n: rate for n, rate in at.memory.rates.by_size.items() if n <= at.size}
    memory = begin_search(at.memory, at.size, rates=rates, most_plans=THRESHOLDS.later_search_plans)
    return memory.with_search(looks=search.looks + 1)


def _compared_with_finish_time(at: Situation) -> ScalingMemory:
    """Return the memory at the beginning of another search if the finish time needs another size."""
    strays = at.memory.rates.strays
    present = at.memory.rates.by_size[at.size]
    changed = len(strays) >= THRESHOLDS.too_slow_windows
    if changed:
        present = MeasuredRate(fmean(strays), len(strays), at.now.wall)
    if not _needs_another(at, present.mean):
        return at.memory.with_search(settled_windows=at.search.settled_windows + 1)
    # The rates before a change do not hold.
    rates = {at.size: present} if changed else None
    most_plans = THRESHOLDS.later_search_plans
    return begin_search(at.memory, at.size, rates=rates, most_plans=most_plans)


def _needs_another(at: Situation, rate: float) -> bool:
    """Return whether the settled size will miss the finish time, or a far smaller one meets it.

    If no size could meet it when the search ended, the search has found the fastest size.
    """
    enough = at.now.objective.enough or 0.0
    needed = at.now.objective.needed or 0.0
    larger = any(n > at.size and known.mean >= needed for n, known in at.known.items())
    could_be_met = larger or at.search.needed_rate <= at.search.settled_rate
    windows = at.search.settled_windows
    if rate < needed * THRESHOLDS.too_slow and could_be_met and at.size < at.bounds.maximum:
        return windows >= THRESHOLDS.too_slow_windows
    far_less = enough < THRESHOLDS.far_less * rate and at.size > at.bounds.minimum
    in_time = at.now.horizon >= THRESHOLDS.least_horizon
    return far_less and in_time and windows >= THRESHOLDS.too_fast_windows
