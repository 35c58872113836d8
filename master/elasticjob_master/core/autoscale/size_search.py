"""The search for the best number of members: it climbs as long as that pays, and goes back once.

From a small size the search doubles as long as the measured throughput grows enough, and goes down
once from the first size that is too large. From the maximum it goes down first, until there are too
few members, and goes up once. In the first direction it may go too far, because it can turn back.
In the second one it must not pass the best size: downwards it stops before a size that could be too
small, upwards it takes small steps. Which sizes those are is estimated by curves; but no curve is
believed against a measurement: the search never ends at a size that is clearly worth less than
another one that it has measured. After it has settled, only a change made by others, another
setting or a lasting change of the throughput begins a new search.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from elasticjob_master.core.autoscale.candidate_sizes import allowed, next_larger, rounder
from elasticjob_master.core.autoscale.climb import climb
from elasticjob_master.core.autoscale.curve import CurveFit, SizeEstimates, fit_curves
from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.measured_worth import (
    GAP,
    best_measured,
    compared_text,
    measured_text,
)
from elasticjob_master.core.autoscale.moves import MOST_MOVES, go_back, move, settle
from elasticjob_master.core.autoscale.objective_text import threshold_text
from elasticjob_master.core.autoscale.reopening import reopened
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory

_MOST_WINDOWS = 6.0
"""A size is measured up to so many times while it is undecided what to do."""
_LEAST_WINDOWS = 2.0
_EXACT = 0.015
"""A move that cannot be reverted waits for so many windows, and for so small a standard error of
their mean.
"""
_SURE = 0.8
"""The likelihood with which a decision needs no further measurement."""
_STEP = 1.25
"""The factor by which the size grows after the turn, if that reaches the maximum with the remaining
plans.
"""
_TRY = 0.05
_TRY_AGAIN = 0.3
_TURN = 0.6
"""How likely a larger or smaller size must be better: to try it, to try it after a poor step, and
to turn for it.
"""
_CAREFUL = 0.95
_LIKELY = 0.9
_BOLD = 0.2
"""How likely a new size must be enough: usually, in a step up after the turn, and in a step down
before it.
"""
_FURTHER = 0.6
"""The search goes down to no less than this part of the smallest size it knows, if that is worth
most so far.
"""
_WORTH_TRYING = 0.03
"""By which part a size that was not tried must promise to be faster than the best that was."""


def next_size(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds) -> ScalingDecision:
    """Return the next size to try, or that the search goes on measuring or settles.

    Args:
        memory: the measurements, with the present size among them.
        now: the job's present state.
        bounds: the sizes allowed, which may be narrower than the job's own at the moment.
    """
    size = now.size
    memory = reopened(memory, now, bounds)
    if memory.settled is not None:
        return ScalingDecision(f"{measured_text(memory, size, now)}; settled at {size}", memory)
    if bounds.maximum <= bounds.minimum or size < bounds.minimum:
        return settle(
            memory,
            now,
            bounds,
            f"{measured_text(memory, size, now)}; {bounds.limit} allows no other size",
        )
    known = {n: rate for n, rate in memory.measured_rates().items() if rate.mean > 0}
    if size not in known:
        return ScalingDecision(f"{size} members train nothing", memory)
    poor = False
    if memory.heading >= 0 and not memory.turned and memory.moves < MOST_MOVES:
        climbed, poor = climb(memory, now, bounds, known)
        if climbed is not None:
            return climbed
    if not now.window_is_over:
        return ScalingDecision(f"{measured_text(memory, size, now)} so far", memory)
    fitted = fit_curves(known, memory.noise)
    if len(known) == 1:
        return _second_size(memory, now, bounds, fitted)
    estimates = fitted.size_estimates(
        min(bounds.minimum, size), max(bounds.maximum, size), now.objective
    )
    up = estimates.too_small(size) if size < bounds.maximum else 0.0
    down = estimates.too_large(size) if size > bounds.minimum else 0.0
    facts = f"{compared_text(memory, size, now)}; {_marginal_text(fitted, now)}"
    if memory.moves >= MOST_MOVES and memory.rate(size).weight < _LEAST_WINDOWS:
        return ScalingDecision(f"{facts}; measuring {size} again", memory)
    if memory.moves < MOST_MOVES and not _is_decided(memory, size, up, down):
        return ScalingDecision(f"{facts}; not clear yet, measuring {size} again", memory)
    if memory.moves < MOST_MOVES:
        facts += f"; a larger size is better with a likelihood of {up:.0%}, a smaller one with {down:.0%}"
        direction = _direction(memory, up, down, poor=poor, at_minimum=size <= bounds.minimum)
        if direction < 0 and _began_too_large(memory, estimates):
            memory = replace(
                memory, heading=0
            )  # the first step up was a question, so this one is no turn
        target = (
            _larger_size(memory, size, bounds, estimates)
            if direction > 0
            else _smaller_size(memory, size, bounds, estimates, needed=now.objective.needed or 0.0)
        )
        if (target - size) * direction > 0 and (
            direction > 0 or size - target >= min(size, max(1, size // 10))
        ):
            return _move_or_return(memory, now, bounds, fitted, target, facts)
    return settle(memory, now, bounds, facts)


def _direction(
    memory: ScalingMemory, up: float, down: float, *, poor: bool, at_minimum: bool
) -> int:
    """Return 1 to go up, -1 to go down or 0 to stay, by the likelihoods that the best size is larger or smaller."""
    if memory.turned:
        return int(up > _TRY) if memory.heading > 0 else -int(down > _TURN)
    if memory.heading < 0 and not at_minimum:
        # Trying a smaller size costs little, as the search can still turn.
        return 1 if up > _TURN else -int(max(up, down) > _TRY)
    least = _TRY_AGAIN if poor else _TRY
    return 1 if up > least and (memory.heading > 0 or up > down) else -int(down > _TURN)


def _began_too_large(memory: ScalingMemory, estimates: SizeEstimates) -> bool:
    """Return whether the only step so far, up, has shown that the best size is rather below the first one."""
    return (
        memory.moves == 1 and memory.heading > 0 and estimates.too_large(min(memory.rates)) > 1 / 2
    )


def _is_exact(memory: ScalingMemory, size: int) -> bool:
    """Return whether a size has been measured often enough, given the noise, for a move that cannot be reverted."""
    windows = memory.rate(size).weight
    return windows >= _MOST_WINDOWS or windows >= max(_LEAST_WINDOWS, (memory.noise / _EXACT) ** 2)


def _is_decided(memory: ScalingMemory, size: int, up: float, down: float) -> bool:
    """Return whether the direction is certain enough; one window is enough for growing."""
    if memory.rate(size).weight >= _MOST_WINDOWS:
        return True
    most = max(up, down, 1 - up - down)
    return most >= _SURE and ((memory.heading >= 0 and most == up) or _is_exact(memory, size))


def _larger_size(memory: ScalingMemory, size: int, bounds: Bounds, estimates: SizeEstimates) -> int:
    """Return the size to grow to.

    Up to twice the present one before the turn, a small step after it.
    """
    if memory.heading >= 0 and not memory.turned:
        return next_larger(size, bounds)
    highest = max(memory.rates)
    step = max(_STEP, math.pow(bounds.maximum / highest, 1 / (MOST_MOVES - memory.moves)))
    target = max(size + 1, min(estimates.enough(_LIKELY), math.floor(highest * step)))
    target = rounder(min(bounds.maximum, target), bounds, below=bounds.maximum + 1)
    return max(
        allowed(target, bounds), min(bounds.maximum, allowed(size + bounds.multiple_of, bounds))
    )


def _smaller_size(
    memory: ScalingMemory, size: int, bounds: Bounds, estimates: SizeEstimates, *, needed: float
) -> int:
    """Return the size to shrink to.

    Down to half the present one before the turn, a size that is enough after it.
    It is none of those that are known to train less than is needed.
    """
    if memory.heading <= 0 and not memory.turned:
        least = min(memory.rates)
        target = max(math.ceil(least * _FURTHER), min(least - 1, estimates.enough(_BOLD)))
        return allowed(max(bounds.minimum, target), bounds)
    least = max(bounds.minimum, estimates.enough(_CAREFUL))
    slow = [n for n, rate in memory.rates.items() if n < size and rate < needed]
    if slow:
        least = max(least, max(slow) + bounds.multiple_of)  # whatever the curves say
    return allowed(rounder(least, bounds, below=size), bounds)


def _second_size(
    memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, fitted: CurveFit
) -> ScalingDecision:
    """Choose the second size of a search at the maximum: fewer members."""
    size = now.size
    facts = f"{measured_text(memory, now.size, now)}, no other size is known"
    if not _is_exact(memory, size):
        return ScalingDecision(f"{facts}; measuring {size} again", memory)
    if size >= bounds.maximum:
        facts += f"; {bounds.limit} allows no more than {bounds.maximum}"
        if bounds.limit_is_temporary:
            return ScalingDecision(facts, memory)
        if memory.heading > 0:
            return settle(memory, now, bounds, f"{facts}, and it has got faster")
    target = allowed(size * 3 // 4, bounds)
    memory = replace(memory, heading=0)  # it was only a preference, so this move is no turn
    return move(memory, now, bounds, target, facts, expected=fitted.rate(target))


def _move_or_return(
    memory: ScalingMemory,
    now: ScalingInputs,
    bounds: Bounds,
    fitted: CurveFit,
    target: int,
    facts: str,
) -> ScalingDecision:
    """Request a size.

    If it promises no more than a measured one in the same direction, that one, to stay there.
    """
    expected = fitted.rate(target)
    heading = 1 if target > now.size else -1
    found = best_measured(memory, now, bounds)
    turned = memory.turned or memory.heading == -heading
    if turned and (found - now.size) * heading > 0:
        no_faster = expected < memory.rates[found] * (1 + _WORTH_TRYING)
        if heading > 0:
            beyond = min((n for n in memory.rates if n > found), default=math.inf)
            if no_faster or (target > found and (target >= beyond or beyond < GAP * found)):
                return go_back(memory, now, bounds, found, facts)  # the larger one is worth less
        elif target >= found:
            if no_faster:
                return go_back(memory, now, bounds, found, facts)
        elif min(memory.rates) < found:
            return go_back(memory, now, bounds, found, facts)  # smaller ones are worth less
        else:
            target = max(target, allowed(math.ceil(found * _FURTHER), bounds))
            expected = fitted.rate(target)
    return move(memory, now, bounds, target, facts, expected=expected)


def _marginal_text(fitted: CurveFit, now: ScalingInputs) -> str:
    """Return a text: what the last member adds by the fitted curve, compared with the objective.

    Or what is needed.
    """
    if now.objective.needed is not None and now.objective.enough is not None:
        return f"finishTime needs {now.objective.needed:.1f} samples/s, {now.objective.enough:.1f} with a reserve"
    before = max(1, now.size - 1)
    gain = before * (fitted.rate(before + 1) / fitted.rate(before) - 1)
    least = now.objective.threshold(before)
    comparison = "at least" if gain >= least else "below"
    last_member = f"by the fitted curve the last member adds {gain:.0%} of an average one"
    return f"{last_member}, {comparison} {threshold_text(now.objective, before)}"
