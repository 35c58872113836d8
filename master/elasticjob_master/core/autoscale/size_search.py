"""The search for the best number of members: it climbs while that pays, and goes back once.

From a small size the search doubles while the measured throughput grows enough, and turns at the
first size that is too large. From the maximum it goes down first, until there are too few members,
and then up. In its first direction it may go too far, because it can turn back. After the turn it
must not pass the best size: downwards it stops before a size that could be too small, upwards it
takes small steps.

Curves estimate which sizes those are, but a measurement overrules them: the search never ends at a
size that is clearly worth less than another measured one. After it has settled, only a change made
by another actor, another setting, or a lasting change of the throughput begins a new search.
"""

from __future__ import annotations

import math

from elasticjob_master.core.autoscale.candidate_sizes import allowed, next_larger, rounder
from elasticjob_master.core.autoscale.climb import climb
from elasticjob_master.core.autoscale.curve import CurveFit, SizeEstimates, fit_curves
from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.measured_worth import (
    Situation,
    best_measured,
    clearly_better,
    compared_text,
    measured_text,
)
from elasticjob_master.core.autoscale.moves import go_back, move, settle
from elasticjob_master.core.autoscale.objective_text import threshold_text
from elasticjob_master.core.autoscale.reopening import reopened
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


def next_size(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds) -> ScalingDecision:
    """Return the next size to try, or that the search measures again or settles.

    Args:
        memory: the state, with a measurement of the present size.
        now: the job's present state.
        bounds: the sizes allowed, which may be narrower than the job's own for a while.
    """
    size = now.size
    measured = measured_text(memory, size, now)
    memory = reopened(Situation(memory, now, bounds))
    at = Situation(memory, now, bounds)
    if memory.search.settled_size is not None:
        return ScalingDecision(f"{measured}; settled at {size}", memory)
    if now.rate_rises:
        return ScalingDecision(f"{measured}, which still rises; measuring {size} again", memory)
    if bounds.maximum <= bounds.minimum or size < bounds.minimum:
        return settle(at, f"{measured}; {bounds.limit} allows no other size")
    if size not in at.known:
        return ScalingDecision(f"{size} members train nothing", memory)
    if at.climbs:
        climbed = climb(at)
        if climbed is not None:
            return climbed
    early = not now.window_is_over
    if early and clearly_better(at) is None:
        return ScalingDecision(f"{measured} so far", memory)
    fitted = fit_curves(at.known, memory.rates.noise)
    if len(at.known) == 1:
        return _second_size(at, fitted)
    decision = _by_curves(at, fitted)
    if early and decision.changes_nothing:
        return ScalingDecision(f"{measured} so far", memory)
    return decision


def _by_curves(at: Situation, fitted: CurveFit) -> ScalingDecision:
    """Return what the fitted curves recommend."""
    size = at.size
    bounds = at.bounds
    facts = f"{compared_text(at)}; {_marginal_text(fitted, at.now)}"
    if at.search.looks and at.search.plans == 1:
        # A look is no search: it costs two rescales, and the larger size has to prove itself.
        origin = min(at.known)
        if at.worth(size) < at.worth(origin) + THRESHOLDS.clearly_better:
            return go_back(at, origin, facts)
    plans_left = THRESHOLDS.search_plans - at.search.plans
    windows = at.memory.rates.by_size[size].weight
    if plans_left <= 0:
        if windows < THRESHOLDS.least_windows:
            return ScalingDecision(f"{facts}; measuring {size} again", at.memory)
        return settle(at, facts)
    estimates = fitted.size_estimates(
        min(bounds.minimum, size), max(bounds.maximum, size), at.now.objective
    )
    up = estimates.too_small(size) if size < bounds.maximum else 0.0
    down = estimates.too_large(size) if size > bounds.minimum else 0.0
    if not _is_decided(at, up, down):
        found = clearly_better(at)
        if found is not None and at.search.direction > 0:  # no curve explains so abrupt a change
            return go_back(at, found, facts)
        return ScalingDecision(f"{facts}; not clear yet, measuring {size} again", at.memory)
    facts += (
        f"; a larger size is better with a likelihood of {up:.0%}, a smaller one with {down:.0%}"
    )
    direction = _direction(at, up, down)
    if direction > 0:
        target = _larger_size(at, estimates)
        if target > size:
            return _move_or_return(at, fitted, target, facts)
    elif direction < 0:
        target = _smaller_size(at, estimates)
        returns = size - target < max(1, size // 10) and _is_not_worth_it(at, estimates)
        if returns:
            target = best_measured(at)
        if size - target >= max(1, size // 10):
            if _began_too_large(at, estimates, returns=returns):
                # The first step up was a question, so this step down is not a turn.
                at = Situation(at.memory.with_search(direction=0), at.now, bounds)
            return _move_or_return(at, fitted, target, facts)
    return settle(at, facts)


def _direction(at: Situation, up: float, down: float) -> int:
    """Return 1 to go up, -1 to go down or 0 to stay.

    Args:
        at: the situation.
        up: the likelihood that a larger size is better.
        down: the likelihood that a smaller size is better.
    """
    if at.search.turned:
        if at.search.direction > 0:
            return int(up > THRESHOLDS.try_larger)
        return -int(down > THRESHOLDS.turn)
    if at.search.direction < 0 and at.size > at.bounds.minimum:
        # Either way costs little to try, because the search can still turn.
        if max(up, down) <= THRESHOLDS.try_larger:
            return 0
        return 1 if up > down else -1
    if up > THRESHOLDS.try_larger_again and (at.search.direction > 0 or up > down):
        return 1
    return -int(down > THRESHOLDS.turn)


def _is_not_worth_it(at: Situation, estimates: SizeEstimates) -> bool:
    """Return whether a smaller measured size is worth more, also within the error, and not too small.

    A larger size has to show that it is worth its members.
    """
    found = best_measured(at)
    more = at.worth(found) - at.worth(at.size)
    is_enough = estimates.too_small(found) < 1 / 2
    return found < at.size and more > THRESHOLDS.clearly_better and is_enough


def _began_too_large(at: Situation, estimates: SizeEstimates, *, returns: bool) -> bool:
    """Return whether the first step, up, has shown that fewer members than at first may be better."""
    only_step_up = at.search.plans == 1 and at.search.direction > 0
    return only_step_up and (returns or estimates.too_large(min(at.memory.rates.by_size)) > 1 / 2)


def _is_exact(at: Situation) -> bool:
    """Return whether the present size is measured well enough for a move that cannot be reverted."""
    windows = at.memory.rates.by_size[at.size].weight
    needed = (at.memory.rates.noise / THRESHOLDS.exact) ** 2
    needed = min(max(THRESHOLDS.least_windows, needed), THRESHOLDS.most_windows)
    return windows >= needed


def _is_decided(at: Situation, up: float, down: float) -> bool:
    """Return whether the direction is certain enough; one window is enough to grow."""
    if at.memory.rates.by_size[at.size].weight >= THRESHOLDS.most_windows:
        return True
    most = max(up, down, 1 - up - down)
    may_turn_back = at.search.direction >= 0 and most == up
    early = not at.now.window_is_over  # a measured size is clearly better
    return most >= THRESHOLDS.sure and (may_turn_back or early or _is_exact(at))


def _larger_size(at: Situation, estimates: SizeEstimates) -> int:
    """Return the size to grow to: about twice the present one before the turn, else a small step."""
    bounds = at.bounds
    if at.search.direction >= 0 and not at.search.turned:
        return next_larger(at.size, bounds)
    highest = max(at.memory.rates.by_size)
    plans_left = THRESHOLDS.search_plans - at.search.plans
    step = max(THRESHOLDS.small_step, math.pow(bounds.maximum / highest, 1 / plans_left))
    target = min(estimates.enough(THRESHOLDS.likely), math.floor(highest * step))
    target = min(bounds.maximum, max(at.size + 1, target))
    target = allowed(rounder(target, bounds, below=bounds.maximum + 1), bounds)
    return max(target, allowed(at.size + bounds.multiple_of, bounds))


def _smaller_size(at: Situation, estimates: SizeEstimates) -> int:
    """Return the size to shrink to: a bold step before the turn, else a size that is enough.

    After the turn it is larger than any size that is known to train less than is needed.
    """
    bounds = at.bounds
    rates = at.memory.rates.by_size
    if at.search.direction <= 0 and not at.search.turned:
        smallest = min(rates)
        target = min(smallest - 1, estimates.enough(THRESHOLDS.bold))
        target = max(math.ceil(smallest * THRESHOLDS.step_down), target)
        return allowed(target, bounds)
    target = max(bounds.minimum, estimates.enough(THRESHOLDS.careful))
    needed = at.now.objective.needed or 0.0
    too_slow = [n for n, rate in rates.items() if n < at.size and rate.mean < needed]
    if too_slow:
        target = max(target, max(too_slow) + bounds.multiple_of)
    return allowed(rounder(target, bounds, below=at.size), bounds)


def _second_size(at: Situation, fitted: CurveFit) -> ScalingDecision:
    """Return the second size of a search that cannot climb: fewer members."""
    size = at.size
    bounds = at.bounds
    facts = f"{measured_text(at.memory, size, at.now)}, no other size is known"
    if size >= bounds.maximum:
        facts += f"; {bounds.limit} allows no more than {bounds.maximum}"
        if bounds.limit_is_temporary:
            return ScalingDecision(facts, at.memory)
        if at.search.direction > 0 and _is_exact(at):
            return settle(at, f"{facts}, and it has got faster")
    # The look costs samples, so the job trains for some time first.
    if at.memory.rates.by_size[size].weight < THRESHOLDS.most_windows:
        return ScalingDecision(f"{facts}; measuring {size} again", at.memory)
    target = allowed(size * 3 // 4, bounds)
    # The direction was only a preference, so this move is not a turn.
    at = Situation(at.memory.with_search(direction=0), at.now, bounds)
    return move(at, target, facts, expected=fitted.rate(target))


def _move_or_return(at: Situation, fitted: CurveFit, target: int, facts: str) -> ScalingDecision:
    """Request a size, or the best measured one in the same direction if that promises as much."""
    expected = fitted.rate(target)
    direction = 1 if target > at.size else -1
    found = best_measured(at)
    turns = at.search.turned or at.search.direction == -direction
    if turns and (found - at.size) * direction > 0:
        rates = at.memory.rates.by_size
        no_faster = expected < at.rate(found) * (1 + THRESHOLDS.worth_trying)
        if direction > 0:
            beyond = min((n for n in rates if n > found), default=math.inf)
            passes = target > found and (target >= beyond or beyond < THRESHOLDS.gap * found)
            if no_faster or passes:  # the larger measured size is worth less
                return go_back(at, found, facts)
        elif target >= found:
            if no_faster:
                return go_back(at, found, facts)
        elif min(rates) < found:  # smaller measured sizes are worth less
            return go_back(at, found, facts)
        else:
            target = max(target, allowed(math.ceil(found * THRESHOLDS.step_down), at.bounds))
            expected = fitted.rate(target)
    return move(at, target, facts, expected=expected)


def _marginal_text(fitted: CurveFit, now: ScalingInputs) -> str:
    """Return a text: what the last member adds by the fitted curve, or what the finish time needs."""
    objective = now.objective
    if objective.needed is not None and objective.enough is not None:
        return (
            f"finishTime needs {objective.needed:.1f} samples/s, {objective.enough:.1f} with a "
            "reserve"
        )
    before = max(1, now.size - 1)
    gain = before * (fitted.rate(before + 1) / fitted.rate(before) - 1)
    comparison = "at least" if gain >= objective.threshold(before) else "below"
    return (
        f"by the fitted curve the last member adds {gain:.0%} of an average one, {comparison} "
        f"{threshold_text(objective, before)}"
    )
