"""How many members: as many as pay, found with one change of direction at most.

From a small size the search doubles while that pays, and comes down once from the first size that is too large. From
a size in the middle, or at the upper bound, it goes down first, to where too few members are felt, and comes up once.
On the first leg nothing is lost, as there is a way back; on the second one it may not pass the best size: down it
stops before a size could be too small, up it goes in steps so short that few members can be too many. Only somebody
else's change, another setting or a lasting change of the throughput opens the question again.
"""

from __future__ import annotations

import math
from dataclasses import replace

from elasticjob_master.core.autoscale.curve import Answers, Fit, fit
from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory

_MOST_MOVES = 8
"""Plans for one question."""
_MOST_WINDOWS = 8.0
"""A size is measured again, up to so many times, while it is open what to do."""
_LEAST_WINDOWS = 3.0
_EXACT = 0.01
"""What cannot be taken back waits for so many windows, and until the standard error of their mean is so small."""
_SURE = 0.8
"""How likely the answer must be to be taken without another look."""
_STEP = 1.25
"""How far it grows at once when there is no way back, if that leads to the upper bound in the plans that are left."""
_MIDDLE = 6
"""A size that is at least this part of the upper bound is so near to it that such steps lead there."""
_TRY, _TURN = 0.05, 0.6
"""How likely another size must be the better one to be tried, and to be worth the only change of direction."""
_CAREFUL, _LIKELY, _BOLD = 0.97, 0.9, 0.2
"""How likely the size to go to must be enough: with no way back, with another step to come, and with a way back."""


def next_size(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds) -> ScalingDecision:
    """Decide for a size that is measured and held.

    Args:
        memory: what was measured; it contains the present size.
        now: the job as it is.
        bounds: sizes allowed, which may be narrower than the job's own for the moment.
    """
    size = now.size
    if memory.settled is not None:
        return ScalingDecision(f"{_measured(memory, size)}; settled at {size}", memory)
    if bounds.maximum <= bounds.minimum or size < bounds.minimum:
        return _stay(memory, now, bounds, f"{_measured(memory, size)}; {bounds.limit} allows no other size")
    known = {n: rate for n, rate in memory.rates.items() if rate.mean > 0}
    if size not in known:
        return ScalingDecision(f"{size} members train nothing", memory)
    found = fit(known, memory.noise)
    if len(known) == 1:
        return _first(memory, now, bounds, found)
    answers = found.answers(min(bounds.minimum, size), max(bounds.maximum, size), now.objective)
    up = answers.too_small(size) if size < bounds.maximum else 0.0
    down = answers.too_large(size) if size > bounds.minimum else 0.0
    facts = f"{_compared(memory, size)}; {_marginal(found, now)}"
    if not _is_clear(memory, size, up, down):
        return ScalingDecision(f"{facts}; not clear yet, measuring {size} again", memory)
    if memory.moves < _MOST_MOVES:
        facts += f"; a larger size is better with a likelihood of {up:.0%}, a smaller one with {down:.0%}"
        way = _way(memory, up, down, lowest=size <= bounds.minimum)
        target = _higher(memory, size, bounds, answers) if way > 0 else _lower(memory, size, bounds, answers)
        if (target - size) * way > 0:
            return _move(memory, now, bounds, found, target, facts)
    return _stay(memory, now, bounds, facts)


def _way(memory: ScalingMemory, up: float, down: float, *, lowest: bool) -> int:
    """Return where to go, 1 up, -1 down or 0 to stay, by how likely the best size is there. It turns once at most."""
    if memory.turned:
        return int(up > _TRY) if memory.heading > 0 else -int(down > _TURN)
    if memory.heading < 0 and not lowest:
        # A look further down costs little, as there is a way back.
        return 1 if up > _TURN else -int(max(up, down) > _TRY)
    return 1 if up > _TRY and (memory.heading > 0 or up > down) else -int(down > _TURN)


def _is_exact(memory: ScalingMemory, size: int) -> bool:
    """Whether a size has been measured often enough, as noisy as it is, for what cannot be taken back."""
    windows = memory.rates[size].weight
    return windows >= _MOST_WINDOWS or windows >= max(_LEAST_WINDOWS, (memory.noise / _EXACT) ** 2)


def _is_clear(memory: ScalingMemory, size: int, up: float, down: float) -> bool:
    """Whether it is known well enough what to do; to grow, one window is enough."""
    if memory.rates[size].weight >= _MOST_WINDOWS:
        return True
    most = max(up, down, 1 - up - down)
    return most >= _SURE and ((memory.heading >= 0 and most == up) or _is_exact(memory, size))


def _higher(memory: ScalingMemory, size: int, bounds: Bounds, answers: Answers) -> int:
    """Return the size to grow to: up to twice as many if there is a way back, else a short step."""
    if memory.heading >= 0 and not memory.turned:
        return min(2 * size, bounds.maximum, max(size + 1, answers.enough(_CAREFUL)))
    highest = max(memory.rates)
    step = max(_STEP, math.pow(bounds.maximum / highest, 1 / (_MOST_MOVES - memory.moves)))
    return min(bounds.maximum, max(size + 1, min(answers.enough(_LIKELY), math.floor(highest * step))))


def _lower(memory: ScalingMemory, size: int, bounds: Bounds, answers: Answers) -> int:
    """Return the size to shrink to: down to the half if there is a way back, else only where it is enough."""
    if memory.heading < 0 and not memory.turned:
        return max(bounds.minimum, size // 2, min(size - 1, answers.enough(_BOLD)))
    return max(bounds.minimum, answers.enough(_CAREFUL))


def _first(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, found: Fit) -> ScalingDecision:
    """With one size known there is nothing to compare it with: try twice as many, or fewer where that tells more."""
    size, facts = now.size, f"{_measured(memory, now.size)}, no other size is known"
    if not _is_exact(memory, size):
        return ScalingDecision(f"{facts}; measuring {size} again", memory)
    target = min(2 * size, bounds.maximum)
    if size >= bounds.maximum:
        facts += f"; {bounds.limit} allows no more than {bounds.maximum}"
        if bounds.limit_is_temporary:
            return ScalingDecision(facts, memory)
    if size >= bounds.maximum or (memory.heading < 0 and size > bounds.minimum):
        target = max(bounds.minimum, size // 2)
    elif not memory.heading and _is_middle(size, bounds):
        target = max(bounds.minimum, size * 3 // 4)
    memory = replace(memory, heading=0)  # where it was to go first was no move yet, so this one is no turn
    return _move(memory, now, bounds, found, target, facts)


def _is_middle(size: int, bounds: Bounds) -> bool:
    """Whether short steps lead up to the upper bound from here, while single members do not lead down to the lower."""
    return size - bounds.minimum >= _MOST_MOVES and bounds.maximum <= _MIDDLE * size


def _move(
    memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, found: Fit, target: int, facts: str
) -> ScalingDecision:
    """Ask for a size if the change pays in the time that is left."""
    size, cost = now.size, memory.cost
    grows = target > size
    heading = 1 if grows else -1
    gain = found.rate(target) / found.rate(size) - 1
    # A shrink that costs throughput pays in members that others can use.
    saved = gain if grows else max(gain, 1 - target / size)
    if saved * max(0.0, now.horizon - cost) < cost:
        kind = "throughput" if grows or gain >= saved else "members"
        why = f"a rescale costs {cost:.0f} s, more than {max(0.0, saved):.0%} of {kind} save in {now.horizon:.0f} s"
        return ScalingDecision(f"{facts}; {target} members would be tried, but {why}", memory)
    turned = memory.turned or memory.heading == -heading
    after = replace(memory, asked=target, heading=heading, turned=turned, moves=memory.moves + 1)
    bound = f", bounded by {bounds.limit}" if grows and target == bounds.maximum < 2 * size else ""
    expected = f"{found.rate(target):.1f} samples/s expected" if len(memory.rates) > 1 else "to see what they add"
    word = "grow to" if grows else "back to" if target in memory.rates else "shrink to"
    return ScalingDecision(f"{facts}: {word} {target}{bound}, {expected}", after, size=target)


def _stay(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, facts: str) -> ScalingDecision:
    if bounds.limit_is_temporary and now.size >= bounds.maximum:
        return ScalingDecision(f"{facts}; {bounds.limit}", memory)
    reference = memory.rates[now.size].mean
    after = replace(memory, settled=now.size, reference=reference, strays=())
    bound = f"; {bounds.limit} allows no more than {bounds.maximum}" if now.size == bounds.maximum else ""
    return ScalingDecision(f"{facts}{bound}; settled at {now.size}", after)


def _marginal(found: Fit, now: ScalingInputs) -> str:
    """What the last member adds by the expected curve, beside the objective."""
    before = max(1, now.size - 1)
    gain = before * (found.rate(before + 1) / found.rate(before) - 1)
    word = "at least" if gain >= now.objective else "below"
    fitted = f"by the fitted curve the last member adds {gain:.0%} of an average one"
    return f"{fitted}, {word} minMarginalEfficiency {now.objective:.0%}"


def _compared(memory: ScalingMemory, size: int) -> str:
    """The present size and its nearest neighbours, with their rates."""
    others = [n for n in memory.rates if n != size]
    near = [max((n for n in others if n < size), default=None), min((n for n in others if n > size), default=None)]
    return ", ".join(_measured(memory, n) for n in sorted({size, *(n for n in near if n is not None)}))


def _measured(memory: ScalingMemory, size: int) -> str:
    return f"{size} members: {memory.rates[size].mean:.1f} samples/s"
