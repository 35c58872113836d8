"""The search for the best number of members: it climbs as long as that pays, and goes back once.

From a small size the search doubles as long as the measured throughput grows enough, and goes down once from the first
size that is too large. From the maximum it goes down first, until there are too few members, and goes up once. In the
first direction it may go too far, because it can turn back. In the second one it must not pass the best size: downwards
it stops before a size that could be too small, upwards it takes small steps. Which sizes those are is estimated by
curves; but no curve is believed against a measurement: the search never ends at a size that is clearly worth less than
another one that it has measured. After it has settled, only a change made by others, another setting or a lasting
change of the throughput begins a new search.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from msgspec.structs import replace

from elasticjob_master.core.autoscale.candidate_sizes import allowed, next_larger, rounder
from elasticjob_master.core.autoscale.curve import CurveFit, SizeEstimates, fit_curves, relative_error
from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.scaling_memory import MeasuredRate, ScalingMemory

_MOST_MOVES, _MOST_RETURNS = 8, 2
"""The most plans of one search, and how many more may bring it back to a size that was better."""
_MOST_WINDOWS = 6.0
"""A size is measured up to so many times while it is undecided what to do."""
_LEAST_WINDOWS = 2.0
_EXACT = 0.015
"""A move that cannot be reverted waits for so many windows, and for so small a standard error of their mean."""
_CLIMB_WINDOWS = 2.0
"""After so many windows the climb goes by the mean, however close it is to the objective."""
_ABOUT = 0.05
"""An elasticity that is lower than the objective by so little is as good."""
_SLOWDOWN = 0.25
"""By how much an elasticity must be below the one before to show that the throughput is reaching a limit."""
_EXACT_STEP = 0.15
"""The first size is measured until its relative error is at most this part of the step to the next one."""
_SURE = 0.8
"""The likelihood with which a decision needs no further measurement."""
_STEP = 1.25
"""The factor by which the size grows after the turn, if that reaches the maximum with the remaining plans."""
_TRY, _TRY_AGAIN, _TURN = 0.05, 0.3, 0.6
"""How likely a larger or smaller size must be better: to try it, to try it after a poor step, and to turn for it."""
_CAREFUL, _LIKELY, _BOLD = 0.95, 0.9, 0.2
"""How likely a new size must be enough: usually, in a step up after the turn, and in a step down before it."""
_GAP = 1.5
"""Between two measured sizes with this ratio another one may be better than both."""
_FURTHER = 0.6
"""The search goes down to no less than this part of the smallest size it knows, if that is worth most so far."""
_CLEARLY = 0.03
_CLEARLY_ERRORS = 1.5
"""A measured size is worth clearly more if it is by this part, and by so many standard errors of the difference."""
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
    if memory.settled is not None:
        return ScalingDecision(f"{_measured_text(memory, size)}; settled at {size}", memory)
    if bounds.maximum <= bounds.minimum or size < bounds.minimum:
        return _settle(memory, now, bounds, f"{_measured_text(memory, size)}; {bounds.limit} allows no other size")
    known = {n: rate for n, rate in memory.measured_rates().items() if rate.mean > 0}
    if size not in known:
        return ScalingDecision(f"{size} members train nothing", memory)
    poor = False
    if memory.heading >= 0 and not memory.turned and memory.moves < _MOST_MOVES:
        climbed, poor = _climb(memory, now, bounds, known)
        if climbed is not None:
            return climbed
    if not now.window_is_over:
        return ScalingDecision(f"{_measured_text(memory, size)} so far", memory)
    fitted = fit_curves(known, memory.noise)
    if len(known) == 1:
        return _second_size(memory, now, bounds, fitted)
    estimates = fitted.size_estimates(min(bounds.minimum, size), max(bounds.maximum, size), now.objective)
    up = estimates.too_small(size) if size < bounds.maximum else 0.0
    down = estimates.too_large(size) if size > bounds.minimum else 0.0
    facts = f"{_compared_text(memory, size)}; {_marginal_text(fitted, now)}"
    if memory.moves >= _MOST_MOVES and memory.rate(size).weight < _LEAST_WINDOWS:
        return ScalingDecision(f"{facts}; measuring {size} again", memory)
    if memory.moves < _MOST_MOVES and not _is_decided(memory, size, up, down):
        return ScalingDecision(f"{facts}; not clear yet, measuring {size} again", memory)
    if memory.moves < _MOST_MOVES:
        facts += f"; a larger size is better with a likelihood of {up:.0%}, a smaller one with {down:.0%}"
        direction = _direction(memory, up, down, poor=poor, at_minimum=size <= bounds.minimum)
        if direction < 0 and _began_too_large(memory, estimates):
            memory = replace(memory, heading=0)  # the first step up was a question, so this one is no turn
        target = (
            _larger_size(memory, size, bounds, estimates)
            if direction > 0
            else _smaller_size(memory, size, bounds, estimates)
        )
        if (target - size) * direction > 0 and (direction > 0 or size - target >= min(size, max(1, size // 10))):
            return _move_or_return(memory, now, bounds, fitted, target, facts)
    return _settle(memory, now, bounds, facts)


# --- the climb -------------------------------------------------------------------------------------------------------


def _climb(
    memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, known: dict[int, MeasuredRate]
) -> tuple[ScalingDecision | None, bool]:
    """Grow while the measured elasticity of the throughput meets the objective; None: it does not, or is not known.

    The second result is whether the last step was a poor one. A single member communicates with nobody, so the step
    from it to a few says nothing about the next one.
    """
    size = now.size
    target = next_larger(size, bounds)
    lower = max((n for n in known if n < size), default=None)
    if lower is None and target <= size:
        return None, False
    if lower is None:
        facts = f"{_measured_text(memory, size)}, no smaller size is known"
        if relative_error(known[size], memory.noise, known[size].at) > _EXACT_STEP * math.log(target / size):
            return ScalingDecision(f"{facts}; measuring {size} again", memory), False
        return _move(memory, now, bounds, target, facts, expected=known[size].mean * target / size), False
    elasticity, error = _elasticity(known, lower, size, memory.noise)
    likely = NormalDist().cdf((elasticity - now.objective) / error)
    about = NormalDist().cdf((elasticity - now.objective + _ABOUT) / error)
    expected = known[size].mean * (target / size) ** max(0.0, min(1.0, elasticity))
    facts = (
        f"{_compared_text(memory, size)}; each of the last members added {elasticity:.0%} of an average one "
        f"(minMarginalEfficiency {now.objective:.0%})"
    )
    alone = lower == 1 and size <= 3  # 2 or 3 is what `next_larger` makes of 1
    clear = likely >= _SURE or (known[size].weight >= _CLIMB_WINDOWS and about >= 1 / 2)
    if target <= size:
        stays = clear and now.window_is_over and not _slows_down(known, lower, elasticity, memory.noise)
        return (_settle(memory, now, bounds, facts) if stays else None), not clear
    if alone and not clear:
        expected = known[size].mean * target / size
    if alone or clear:
        return _move(memory, now, bounds, target, facts, expected=expected), False
    if about > 1 - _SURE and known[size].weight < _CLIMB_WINDOWS:
        return ScalingDecision(f"{facts}; not clear yet, measuring {size} again", memory), False
    return None, True


def _slows_down(known: dict[int, MeasuredRate], lower: int, elasticity: float, noise: float) -> bool:
    """Return whether the last step added clearly less than the one before: then a size between may be as good."""
    before = max((n for n in known if n < lower), default=None)
    return before is None or elasticity < _elasticity(known, before, lower, noise)[0] - _SLOWDOWN


def _elasticity(known: dict[int, MeasuredRate], lower: int, size: int, noise: float) -> tuple[float, float]:
    """Return the relative growth of the throughput per relative growth of the size, and its standard error."""
    step = math.log(size / lower)
    error = math.hypot(*(relative_error(known[n], noise, known[size].at) for n in (lower, size)))
    return math.log(known[size].mean / known[lower].mean) / step, max(1e-6, error / step)


# --- after the climb -------------------------------------------------------------------------------------------------


def _direction(memory: ScalingMemory, up: float, down: float, *, poor: bool, at_minimum: bool) -> int:
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
    return memory.moves == 1 and memory.heading > 0 and estimates.too_large(min(memory.rates)) > 1 / 2


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
        return next_larger(size, bounds)
    highest = max(memory.rates)
    step = max(_STEP, math.pow(bounds.maximum / highest, 1 / (_MOST_MOVES - memory.moves)))
    target = max(size + 1, min(estimates.enough(_LIKELY), math.floor(highest * step)))
    target = rounder(min(bounds.maximum, target), bounds, below=bounds.maximum + 1)
    return max(allowed(target, bounds), min(bounds.maximum, allowed(size + bounds.multiple_of, bounds)))


def _smaller_size(memory: ScalingMemory, size: int, bounds: Bounds, estimates: SizeEstimates) -> int:
    """Return the size to shrink to: down to half the present one before the turn, a size that is enough after it."""
    if memory.heading <= 0 and not memory.turned:
        least = min(memory.rates)
        target = max(math.ceil(least * _FURTHER), min(least - 1, estimates.enough(_BOLD)))
        return allowed(max(bounds.minimum, target), bounds)
    return allowed(rounder(max(bounds.minimum, estimates.enough(_CAREFUL)), bounds, below=size), bounds)


def _second_size(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, fitted: CurveFit) -> ScalingDecision:
    """Choose the second size of a search at the maximum: fewer members."""
    size, facts = now.size, f"{_measured_text(memory, now.size)}, no other size is known"
    if not _is_exact(memory, size):
        return ScalingDecision(f"{facts}; measuring {size} again", memory)
    if size >= bounds.maximum:
        facts += f"; {bounds.limit} allows no more than {bounds.maximum}"
        if bounds.limit_is_temporary:
            return ScalingDecision(facts, memory)
        if memory.heading > 0:
            return _settle(memory, now, bounds, f"{facts}, and it has got faster")
    target = allowed(size * 3 // 4, bounds)
    memory = replace(memory, heading=0)  # it was only a preference, so this move is no turn
    return _move(memory, now, bounds, target, facts, expected=fitted.rate(target))


def _move_or_return(
    memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, fitted: CurveFit, target: int, facts: str
) -> ScalingDecision:
    """Request a size; if it promises no more than a measured one in the same direction, that one, to stay there."""
    expected, heading = fitted.rate(target), 1 if target > now.size else -1
    found = _best_measured(memory, now, bounds)
    same_way = (found - now.size) * heading > 0
    if memory.turned or memory.heading == -heading:
        not_passed = (target - found) * heading <= 0
        if same_way and not_passed and expected < memory.rates[found] * (1 + _WORTH_TRYING):
            return _return(memory, now, bounds, found, facts)
        if same_way and heading > 0 and target > found:
            beyond = min((n for n in memory.rates if n > found), default=None)
            if beyond is not None and (target >= beyond or beyond < _GAP * found):
                return _return(memory, now, bounds, found, facts)  # the larger one is worth less
            if expected < memory.rates[found] * (1 + _WORTH_TRYING):
                return _return(memory, now, bounds, found, facts)
        if same_way and heading < 0 and target < found:
            if min(memory.rates) < found:
                return _return(memory, now, bounds, found, facts)  # smaller ones are worth less
            target = max(target, allowed(math.ceil(found * _FURTHER), bounds))
            expected = fitted.rate(target)
    return _move(memory, now, bounds, target, facts, expected=expected)


def _move(
    memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, target: int, facts: str, *, expected: float
) -> ScalingDecision:
    """Request a size if the change pays in the remaining training time; `expected` is its rate."""
    size, cost = now.size, memory.cost
    grows = target > size
    heading = 1 if grows else -1
    gain = expected / memory.rates[size] - 1
    # A smaller size that costs throughput frees members for other jobs.
    saved = gain if grows else max(gain, 1 - target / size)
    if saved * max(0.0, now.horizon - cost) < cost:
        kind = "throughput" if grows or gain >= saved else "members"
        why = f"a rescale costs {cost:.0f} s, more than {max(0.0, saved):.0%} of {kind} save in {now.horizon:.0f} s"
        return ScalingDecision(f"{facts}; {target} members would be tried, but {why}", memory)
    turned = memory.turned or memory.heading == -heading
    after = replace(memory, asked=target, heading=heading, turned=turned, moves=memory.moves + 1)
    bound = f", bounded by {bounds.limit}" if grows and target == bounds.maximum < 2 * size else ""
    text = f"{expected:.1f} samples/s expected" if len(memory.rates) > 1 else "to see what they add"
    action = "grow to" if grows else "back to" if target in memory.rates else "shrink to"
    return ScalingDecision(f"{facts}: {action} {target}{bound}, {text}", after, size=target)


def _settle(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, facts: str) -> ScalingDecision:
    """Settle at the present size, or return to a measured one that is worth clearly more.

    At a temporary limit the search goes on.
    """
    if bounds.limit_is_temporary and now.size >= bounds.maximum:
        return ScalingDecision(f"{facts}; {bounds.limit}", memory)
    found = _best_measured(memory, now, bounds)
    may_return = now.window_is_over and memory.moves < _MOST_MOVES + _MOST_RETURNS
    if found != now.size and may_return and _is_clearly_worth_more(memory, found, now):
        returned = _return(memory, now, bounds, found, facts)
        if not returned.changes_nothing:
            return returned
    reference = memory.rates[now.size]
    after = replace(memory, settled=now.size, reference=reference, strays=())
    bound = f"; {bounds.limit} allows no more than {bounds.maximum}" if now.size == bounds.maximum else ""
    return ScalingDecision(f"{facts}{bound}; settled at {now.size}", after)


# --- what was measured -----------------------------------------------------------------------------------------------


def _worth(rate: float, size: int, objective: float) -> float:
    """Return the worth of a size; where every member adds less, its maximum is the last that meets the objective."""
    return math.log(rate) - objective * math.log(size)


def _measured_worth(memory: ScalingMemory, size: int, now: ScalingInputs) -> float:
    return _worth(memory.rates[size], size, now.objective)


def _best_measured(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds) -> int:
    """Return the measured size within the bounds that is worth most; the present one if there is none."""
    sizes = [n for n, rate in memory.rates.items() if rate > 0 and bounds.minimum <= n <= bounds.maximum]
    return max(sizes, key=lambda n: _measured_worth(memory, n, now), default=now.size)


def _is_clearly_worth_more(memory: ScalingMemory, size: int, now: ScalingInputs) -> bool:
    rates = [memory.rate(n) for n in (size, now.size)]
    error = math.hypot(*(relative_error(rate, memory.noise, rates[1].at) for rate in rates))
    more = _measured_worth(memory, size, now) - _measured_worth(memory, now.size, now)
    return more > max(_CLEARLY, _CLEARLY_ERRORS * error)


def _return(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, size: int, facts: str) -> ScalingDecision:
    """Go back to a measured size, to stay there unless measuring it again says otherwise.

    On the way down the size between is tried first.
    """
    between = _between(memory, now, bounds, size)
    if between is not None:
        return _move(memory, now, bounds, between, facts, expected=memory.rates[size])
    decision = _move(memory, now, bounds, size, facts, expected=memory.rates[size])
    if decision.changes_nothing:
        return decision
    after = replace(decision.memory, turned=True, moves=max(decision.memory.moves, _MOST_MOVES))
    return ScalingDecision(f"{facts}: back to {size}, the best that was measured", after, size=size)


def _between(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, lower: int) -> int | None:
    """Return the middle of a wide gap between the present size and a lower one; None: there is none to try."""
    if lower >= now.size or memory.moves >= _MOST_MOVES or memory.turned:
        return None
    if now.size < _GAP * lower or any(lower < n < now.size for n in memory.rates):
        return None
    if abs(memory.rates[now.size] / memory.rates[lower] - 1) < _CLEARLY:
        return None  # a plateau
    middle = rounder(math.ceil(math.sqrt(lower * now.size)), bounds, below=now.size)
    return middle if lower < allowed(middle, bounds) < now.size else None


# --- texts -----------------------------------------------------------------------------------------------------------


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
