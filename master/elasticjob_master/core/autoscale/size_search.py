"""The search for the best number of members, with at most one change of direction.

From a small size the search doubles as long as that pays, and goes down once from the first size that is too large.
From a medium size, or from the maximum, it goes down first, until there are too few members, and goes up once. In the
first direction it may go too far, because it can turn back. In the second one it must not pass the best size: downwards
it stops before a size that could be too small, upwards it takes small steps. After it has settled, only a change made
by others, another setting or a lasting change of the throughput begins a new search.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from elasticjob_master.core.autoscale.curve import CurveFit, SizeEstimates, fit_curves
from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory

_MOST_MOVES = 8
"""The most plans of one search."""
_MOST_WINDOWS = 8.0
"""A size is measured up to so many times while it is undecided what to do."""
_LEAST_WINDOWS = 3.0
_EXACT = 0.01
"""A move that cannot be reverted waits for so many windows, and for so small a standard error of their mean."""
_SURE = 0.8
"""The likelihood with which a decision needs no further measurement."""
_STEP = 1.25
"""The factor by which the size grows after the turn, if that reaches the maximum with the remaining plans."""
_MEDIUM = 6
"""From the maximum divided by this number such steps lead to the maximum."""
_TRY, _TURN = 0.05, 0.6
"""The likelihood of being better that another size needs to be tried, and to justify the change of direction."""
_CAREFUL, _LIKELY, _BOLD = 0.97, 0.9, 0.2
"""How likely a new size must be enough: usually, in a step up after the turn, and in a step down before it."""


def next_size(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds) -> ScalingDecision:
    """Return the next size to try, or that the search goes on measuring or settles.

    Args:
        memory: the measurements, with the present size among them.
        now: the job's present state.
        bounds: the sizes allowed, which may be narrower than the job's own at the moment.
    """
    size = now.size
    if memory.settled is not None:
        return ScalingDecision(f"{_measured_text(memory, size)}; settled at {size}", memory)
    if bounds.maximum <= bounds.minimum or size < bounds.minimum:
        return _settle(memory, now, bounds, f"{_measured_text(memory, size)}; {bounds.limit} allows no other size")
    known = {n: rate for n, rate in memory.measured_rates().items() if rate.mean > 0}
    if size not in known:
        return ScalingDecision(f"{size} members train nothing", memory)
    fitted = fit_curves(known, memory.noise)
    if len(known) == 1:
        return _second_size(memory, now, bounds, fitted)
    estimates = fitted.size_estimates(min(bounds.minimum, size), max(bounds.maximum, size), now.objective)
    up = estimates.too_small(size) if size < bounds.maximum else 0.0
    down = estimates.too_large(size) if size > bounds.minimum else 0.0
    facts = f"{_compared_text(memory, size)}; {_marginal_text(fitted, now)}"
    if not _is_decided(memory, size, up, down):
        return ScalingDecision(f"{facts}; not clear yet, measuring {size} again", memory)
    if memory.moves < _MOST_MOVES:
        facts += f"; a larger size is better with a likelihood of {up:.0%}, a smaller one with {down:.0%}"
        direction = _direction(memory, up, down, at_minimum=size <= bounds.minimum)
        target = (
            _larger_size(memory, size, bounds, estimates)
            if direction > 0
            else _smaller_size(memory, size, bounds, estimates)
        )
        if (target - size) * direction > 0:
            return _move(memory, now, bounds, fitted, target, facts)
    return _settle(memory, now, bounds, facts)


def _direction(memory: ScalingMemory, up: float, down: float, *, at_minimum: bool) -> int:
    """Return 1 to go up, -1 to go down or 0 to stay, by the likelihoods that the best size is larger or smaller."""
    if memory.turned:
        return int(up > _TRY) if memory.heading > 0 else -int(down > _TURN)
    if memory.heading < 0 and not at_minimum:
        # Trying a smaller size costs little, as the search can still turn.
        return 1 if up > _TURN else -int(max(up, down) > _TRY)
    return 1 if up > _TRY and (memory.heading > 0 or up > down) else -int(down > _TURN)


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
    """Return the size to grow to: up to twice the present one before the turn, a small step after it."""
    if memory.heading >= 0 and not memory.turned:
        return min(2 * size, bounds.maximum, max(size + 1, estimates.enough(_CAREFUL)))
    highest = max(memory.rates)
    step = max(_STEP, math.pow(bounds.maximum / highest, 1 / (_MOST_MOVES - memory.moves)))
    return min(bounds.maximum, max(size + 1, min(estimates.enough(_LIKELY), math.floor(highest * step))))


def _smaller_size(memory: ScalingMemory, size: int, bounds: Bounds, estimates: SizeEstimates) -> int:
    """Return the size to shrink to: down to half the present one before the turn, a size that is enough after it."""
    if memory.heading < 0 and not memory.turned:
        return max(bounds.minimum, size // 2, min(size - 1, estimates.enough(_BOLD)))
    return max(bounds.minimum, estimates.enough(_CAREFUL))


def _second_size(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, fitted: CurveFit) -> ScalingDecision:
    """Choose the second size of a search: twice as many members, or fewer from a medium size or the maximum."""
    size, facts = now.size, f"{_measured_text(memory, now.size)}, no other size is known"
    if not _is_exact(memory, size):
        return ScalingDecision(f"{facts}; measuring {size} again", memory)
    target = min(2 * size, bounds.maximum)
    if size >= bounds.maximum:
        facts += f"; {bounds.limit} allows no more than {bounds.maximum}"
        if bounds.limit_is_temporary:
            return ScalingDecision(facts, memory)
    if size >= bounds.maximum or (memory.heading < 0 and size > bounds.minimum):
        target = max(bounds.minimum, size // 2)
    elif not memory.heading and _is_medium(size, bounds):
        target = max(bounds.minimum, size * 3 // 4)
    memory = replace(memory, heading=0)  # it was only a preference, so this move is no turn
    return _move(memory, now, bounds, fitted, target, facts)


def _is_medium(size: int, bounds: Bounds) -> bool:
    """Return whether small steps lead from here to the maximum, and the minimum is not near."""
    return size - bounds.minimum >= _MOST_MOVES and bounds.maximum <= _MEDIUM * size


def _move(
    memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, fitted: CurveFit, target: int, facts: str
) -> ScalingDecision:
    """Request a size if the change pays in the remaining training time."""
    size, cost = now.size, memory.cost
    grows = target > size
    heading = 1 if grows else -1
    gain = fitted.rate(target) / fitted.rate(size) - 1
    # A smaller size that costs throughput frees members for other jobs.
    saved = gain if grows else max(gain, 1 - target / size)
    if saved * max(0.0, now.horizon - cost) < cost:
        kind = "throughput" if grows or gain >= saved else "members"
        why = f"a rescale costs {cost:.0f} s, more than {max(0.0, saved):.0%} of {kind} save in {now.horizon:.0f} s"
        return ScalingDecision(f"{facts}; {target} members would be tried, but {why}", memory)
    turned = memory.turned or memory.heading == -heading
    after = replace(memory, asked=target, heading=heading, turned=turned, moves=memory.moves + 1)
    bound = f", bounded by {bounds.limit}" if grows and target == bounds.maximum < 2 * size else ""
    expected = f"{fitted.rate(target):.1f} samples/s expected" if len(memory.rates) > 1 else "to see what they add"
    action = "grow to" if grows else "back to" if target in memory.rates else "shrink to"
    return ScalingDecision(f"{facts}: {action} {target}{bound}, {expected}", after, size=target)


def _settle(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, facts: str) -> ScalingDecision:
    """Settle at the present size, unless a temporary limit keeps the search from going on."""
    if bounds.limit_is_temporary and now.size >= bounds.maximum:
        return ScalingDecision(f"{facts}; {bounds.limit}", memory)
    reference = memory.rates[now.size]
    after = replace(memory, settled=now.size, reference=reference, strays=())
    bound = f"; {bounds.limit} allows no more than {bounds.maximum}" if now.size == bounds.maximum else ""
    return ScalingDecision(f"{facts}{bound}; settled at {now.size}", after)


def _marginal_text(fitted: CurveFit, now: ScalingInputs) -> str:
    """Return a text: what the last member adds by the fitted curve, compared with the objective."""
    before = max(1, now.size - 1)
    gain = before * (fitted.rate(before + 1) / fitted.rate(before) - 1)
    comparison = "at least" if gain >= now.objective else "below"
    last_member = f"by the fitted curve the last member adds {gain:.0%} of an average one"
    return f"{last_member}, {comparison} minMarginalEfficiency {now.objective:.0%}"


def _compared_text(memory: ScalingMemory, size: int) -> str:
    """Return a text: the present size and the nearest measured ones, with their rates."""
    others = [n for n in memory.rates if n != size]
    near = [max((n for n in others if n < size), default=None), min((n for n in others if n > size), default=None)]
    return ", ".join(_measured_text(memory, n) for n in sorted({size, *(n for n in near if n is not None)}))


def _measured_text(memory: ScalingMemory, size: int) -> str:
    return f"{size} members: {memory.rates[size]:.1f} samples/s"
