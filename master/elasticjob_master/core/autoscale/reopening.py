"""When a size is chosen again although the job is as it was.

The objective was changed, its finish time needs it, or the size was the largest one allowed and
larger ones are now.

What was measured is kept. So the search begins where the measurements point to, and does not climb
once more past sizes that are known. The windows that pass between two looks at a finish time are
counted, not timed: a clock that is wrong, and is set right, asks for two sizes only.
"""

from __future__ import annotations

from statistics import fmean

from msgspec.structs import replace

from elasticjob_master.core.autoscale.curve import fit_curves
from elasticjob_master.core.autoscale.decision import Bounds, ScalingInputs
from elasticjob_master.core.autoscale.scaling_memory import (
    MeasuredRate,
    ScalingMemory,
    begin_search,
)

_TOO_SLOW_WINDOWS = 3
_TOO_FAST_WINDOWS = 12
"""For how many windows a size stays at least, once it was found, when the finish time needs more,
or far less.
"""
_TOO_SLOW = 1.03
"""A size is left for a larger one when it has no more than so many times the rate that makes the
finish time.
"""
_FAR_LESS = 0.7
"""A size is left for a smaller one when so small a part of its rate is enough."""
_LEAST_HORIZON = 3600.0
"""Nobody gains much from members that are released so many seconds before the end, and the end may
be missed.
"""


def reopened(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds) -> ScalingMemory:
    """Return the memory at the beginning of another search, if there is reason for one.

    Else as it is.
    """
    key = now.objective.key
    if memory.objective != key:
        changed = bool(memory.objective)
        memory = replace(memory, objective=key)
        return _search_again(memory, now, bounds) if changed else memory
    enough = now.objective.enough
    may_be_too_small = enough is None or memory.rates[now.size] < enough
    if memory.bounded and memory.settled == now.size < bounds.maximum and may_be_too_small:
        return begin_search(memory, now.size, heading=1)
    if enough is None:
        return memory
    if memory.settled is None:
        # Where the job has got slower, it looks for fewer members first; but a finish time needs
        # more.
        first = memory.heading < 0 and not memory.moves and memory.rates[now.size] < enough
        return replace(memory, heading=1) if first else memory
    if not now.window_is_over:
        return memory
    changed = len(memory.strays) >= _TOO_SLOW_WINDOWS
    present = (
        MeasuredRate(fmean(memory.strays), len(memory.strays), now.wall)
        if changed
        else memory.rate(now.size)
    )
    direction = _needed_direction(memory, now, bounds, present.mean)
    if not direction:
        return replace(memory, waited=memory.waited + 1)
    if changed:  # what was measured before says nothing
        return begin_search(memory.with_rates({now.size: present}), now.size, heading=direction)
    return replace(begin_search(memory, now.size, heading=direction), turned=True)


def _needed_direction(
    memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, rate: float
) -> int:
    """Return 1 if the settled size, with this rate, is going to miss the finish time, -1 if a far smaller one makes it.

    If no size could make it when the search ended, it has found the fastest size.
    """
    enough = now.objective.enough or 0.0
    needed = now.objective.needed or 0.0
    larger = any(n > now.size and known >= needed for n, known in memory.rates.items())
    could_be_made = larger or memory.needed <= memory.reference
    if rate < needed * _TOO_SLOW and could_be_made and now.size < bounds.maximum:
        return int(memory.waited >= _TOO_SLOW_WINDOWS)
    far_less = (
        enough < _FAR_LESS * rate and now.size > bounds.minimum and now.horizon >= _LEAST_HORIZON
    )
    return -int(far_less and memory.waited >= _TOO_FAST_WINDOWS)


def _search_again(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds) -> ScalingMemory:
    """Begin a search by what is known.

    A climb if that shows no end of the growth, else straight to the best size.
    """
    known = {size: rate for size, rate in memory.measured_rates().items() if rate.mean > 0}
    memory = begin_search(memory, now.size)
    if len(known) < 2 or now.size not in known:
        return memory
    fitted = fit_curves(known, memory.noise)
    estimates = fitted.size_estimates(
        min(bounds.minimum, now.size), max(bounds.maximum, now.size), now.objective
    )
    if estimates.too_large(now.size) > estimates.too_small(now.size):
        return replace(memory, heading=-1, turned=True)
    return replace(memory, heading=1, turned=max(known) > now.size)
