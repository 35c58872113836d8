"""When a settled size is chosen again although the job has not changed.

The objective was changed, its finish time needs another size, the size was the largest one allowed
and larger ones are allowed now, or it is time to look at a larger one. Windows between two
comparisons with the finish time are counted, not timed: a clock that is set right costs at most two
plans.
"""

from __future__ import annotations

from statistics import fmean

from elasticjob_master.core.autoscale.measurements import begin_search
from elasticjob_master.core.autoscale.scaling_memory import MeasuredRate, ScalingMemory
from elasticjob_master.core.autoscale.situation import Situation
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS

_PLANS = THRESHOLDS.search_plans // 2


def reopened(at: Situation) -> ScalingMemory:
    """Return the memory at the beginning of another search if there is a reason, else as it is."""
    memory = at.memory
    search = memory.search
    key = at.now.objective.key
    if search.objective_key != key:
        memory = memory.with_search(objective_key=key)
        return begin_search(memory, at.size) if search.objective_key else memory
    enough = at.now.objective.enough
    too_slow = enough is None or memory.rates.mean(at.size) < enough
    if search.at_maximum and search.settled_size == at.size < at.bounds.maximum and too_slow:
        return begin_search(memory, at.size)
    if search.settled_size is None or not at.now.window_is_over:
        return memory
    again = _look(at) if enough is None else _for_finish_time(at, enough)
    return again or memory.with_search(settled_windows=search.settled_windows + 1)


def _look(at: Situation) -> ScalingMemory | None:
    """Return the memory at the beginning of a search among larger sizes, once the rest has paid for it.

    What gets better beyond the present size does not show there.
    """
    if at.size >= at.bounds.maximum:
        return None
    measured = THRESHOLDS.trial_part * at.now.window_seconds
    cost = 2 * at.memory.rates.rescale_seconds + measured
    rest = cost / THRESHOLDS.least_gain / at.now.window_seconds
    if at.search.settled_windows + 1 < at.search.patience * rest:
        return None
    # What was measured of larger sizes may not hold any more.
    rates = {n: rate for n, rate in at.memory.rates.by_size.items() if n <= at.size}
    memory = begin_search(at.memory, at.size, rates=rates, most_plans=_PLANS // 2)
    return memory.with_search(drifted_from=at.size)


def _for_finish_time(at: Situation, enough: float) -> ScalingMemory | None:
    """Return the memory at the beginning of another search if the finish time needs another size.

    If no size could meet it when the search ended, the search has found the fastest size.
    """
    strays = at.memory.rates.strays
    present = at.known[at.size]
    rates = None
    if len(strays) > THRESHOLDS.least_windows:
        # The rates before the change do not hold.
        present = MeasuredRate(fmean(strays), len(strays), at.now.wall)
        rates = {at.size: present}
    needed = at.now.objective.needed or 0.0
    windows = at.search.settled_windows
    larger = any(n > at.size and known.mean >= needed for n, known in at.known.items())
    could_be_met = larger or at.search.needed_rate <= at.search.settled_rate
    late = present.mean < needed * (1 + THRESHOLDS.noticeable) and at.size < at.bounds.maximum
    early = enough * THRESHOLDS.reserve < present.mean and at.size > at.bounds.minimum
    if late and could_be_met:
        again = windows > THRESHOLDS.least_windows
    else:
        in_time = at.now.horizon >= THRESHOLDS.hour
        again = early and in_time and windows >= 2 * THRESHOLDS.most_windows
    if not again:
        return None
    return begin_search(at.memory, at.size, rates=rates, most_plans=_PLANS)
