"""How many members: double while they pay, then settle where the next one would not.

The search turns once: from the first size that is too large it only goes down, carefully, to where the curves say that
the last member pays, and stays. So there is at most one reversal. Only somebody else's change, another setting or a
lasting change of the throughput opens the question again.
"""

from __future__ import annotations

import math
from dataclasses import replace

from elasticjob_master.core.autoscale.curve import Answers, Fit, fit
from elasticjob_master.core.autoscale.decision import Bounds, Decision, Situation
from elasticjob_master.core.autoscale.memory import Memory

_MOST_MOVES = 8
"""Plans for one question."""
_MOST_WINDOWS = 8.0
"""A size is measured again, up to so many times, while it is open what to do."""
_FINAL_WINDOWS = 3.0
_EXACT = 0.02
"""A rate is known well enough for what cannot be taken back after so many windows, and when it is so exact."""
_SURE = 0.8
"""How likely the answer must be to be taken without another look."""
_STEP = 1.3
"""How far it grows at once when there is no way back."""
_TRY_UP, _TRY_DOWN = 0.1, 0.25
_TURN_UP, _TURN_DOWN = 0.25, 0.6
"""How likely another size must be the better one: where the way back is open, and where it is barred afterwards."""
_CAREFUL, _LIKELY, _BOLD = 0.9, 0.75, 0.2
"""Parts of the likelihood up to which the size to go to is counted."""


def next_size(memory: Memory, now: Situation, bounds: Bounds) -> Decision:
    """Decide for a size that is measured and held.

    Args:
        memory: what was measured; it contains the present size.
        now: the job as it is.
        bounds: sizes allowed, which may be narrower than the job's own for the moment.
    """
    size = now.size
    if memory.settled is not None:
        return Decision(f"{_measured(memory, size)}; settled at {size}", memory)
    if bounds.maximum <= bounds.minimum or size < bounds.minimum:
        return _stay(memory, now, bounds, f"{_measured(memory, size)}; {bounds.limit} allows no other size")
    known = {n: rate for n, rate in memory.rates.items() if rate.mean > 0}
    if size not in known:
        return Decision(f"{size} members train nothing", memory)
    found = fit(known, memory.noise)
    if len(known) == 1:
        return _first(memory, now, bounds, found)
    answers = found.answers(min(bounds.minimum, size), max(bounds.maximum, size), now.objective)
    up = answers.too_small(size) if size < bounds.maximum else 0.0
    down = answers.too_large(size) if size > bounds.minimum else 0.0
    facts = f"{_compared(memory, size)}; {_marginal(found, now)}"
    if not _is_clear(memory, size, up, down):
        return Decision(f"{facts}; not clear yet, measuring {size} again", memory)
    if memory.moves < _MOST_MOVES:
        facts += f"; a larger size is better with a likelihood of {up:.0%}, a smaller one with {down:.0%}"
        rival = 0.0 if memory.turned else down
        if _may_go(memory, 1) and up > (_TRY_UP if memory.heading > 0 else max(_TURN_UP, rival)):
            return _move(memory, now, bounds, found, _higher(memory, size, bounds, answers), facts)
        if _may_go(memory, -1) and down > (_TRY_DOWN if _is_open(memory, -1) else _TURN_DOWN):
            return _move(memory, now, bounds, found, _lower(memory, size, bounds, answers), facts)
    return _stay(memory, now, bounds, facts)


def _is_clear(memory: Memory, size: int, up: float, down: float) -> bool:
    """Whether this size has been measured often enough; more often for what cannot be taken back."""
    windows, most = memory.rates[size].weight, max(up, down, 1 - up - down)
    final = most != up or memory.turned or memory.heading < 0
    enough = max(_FINAL_WINDOWS, (memory.noise / _EXACT) ** 2) if final else 1.0
    return windows >= _MOST_WINDOWS or (most >= _SURE and windows >= enough)


def _higher(memory: Memory, size: int, bounds: Bounds, answers: Answers) -> int:
    """Return the size to grow to: twice as many, if what is known says nothing else and there is a way back."""
    if memory.heading >= 0 and not memory.turned:
        return min(2 * size, bounds.maximum, max(size + 1, answers.enough(_CAREFUL)))
    highest = max(memory.rates)
    step = max(_STEP, (bounds.maximum / highest) ** (1 / (_MOST_MOVES - memory.moves)))
    return min(bounds.maximum, max(size + 1, min(answers.enough(_LIKELY), math.floor(highest * step))))


def _lower(memory: Memory, size: int, bounds: Bounds, answers: Answers) -> int:
    """Return the size to shrink to: rather too many than too few when there is no way back, else down to the half."""
    if _is_open(memory, -1):
        return max(bounds.minimum, size // 2, min(size - 1, answers.enough(_BOLD)))
    return max(bounds.minimum, min(size - 1, answers.enough(_CAREFUL)))


def _is_open(memory: Memory, heading: int) -> bool:
    """Whether the search could still turn back after going this way."""
    return not memory.turned and memory.heading == heading


def _may_go(memory: Memory, heading: int) -> bool:
    """The search changes its direction once at most."""
    return not memory.turned or memory.heading == heading


def _first(memory: Memory, now: Situation, bounds: Bounds, found: Fit) -> Decision:
    """With one size known there is nothing to compare: try twice as many; if there cannot be more, half."""
    facts = f"{_measured(memory, now.size)}, no other size is known"
    target = min(2 * now.size, bounds.maximum)
    if memory.heading < 0 and now.size > bounds.minimum:
        target = max(bounds.minimum, now.size // 2)
    elif not memory.heading and _is_middle(now.size, bounds):
        target = max(bounds.minimum, now.size * 3 // 4)
    elif target <= now.size:
        facts += f"; {bounds.limit} allows no more than {bounds.maximum}"
        if bounds.limit_is_temporary:
            return Decision(facts, memory)
        target = max(bounds.minimum, now.size // 2)
    return _move(memory, now, bounds, found, target, facts)


def _is_middle(size: int, bounds: Bounds) -> bool:
    """Whether small steps lead to the upper bound from here, and single members to the lower one do not."""
    return _MOST_MOVES < size < bounds.maximum <= size * _STEP ** (_MOST_MOVES - 1)


def _move(memory: Memory, now: Situation, bounds: Bounds, found: Fit, target: int, facts: str) -> Decision:
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
        return Decision(f"{facts}; {target} members would be tried, but {why}", memory)
    turned = memory.turned or memory.heading == -heading
    after = replace(memory, asked=target, heading=heading, turned=turned, moves=memory.moves + 1)
    bound = f", bounded by {bounds.limit}" if grows and target == bounds.maximum < 2 * size else ""
    expected = f"{found.rate(target):.1f} samples/s expected" if len(memory.rates) > 1 else "to see what they add"
    word = "grow to" if grows else "back to" if target in memory.rates else "shrink to"
    return Decision(f"{facts}: {word} {target}{bound}, {expected}", after, size=target)


def _stay(memory: Memory, now: Situation, bounds: Bounds, facts: str) -> Decision:
    if bounds.limit_is_temporary and now.size >= bounds.maximum:
        return Decision(f"{facts}; {bounds.limit}", memory)
    reference = memory.rates[now.size].mean
    after = replace(memory, settled=now.size, reference=reference, strays=())
    bound = f"; {bounds.limit} allows no more than {bounds.maximum}" if now.size == bounds.maximum else ""
    return Decision(f"{facts}{bound}; settled at {now.size}", after)


def _marginal(found: Fit, now: Situation) -> str:
    """What the last member adds by the expected curve, beside the objective."""
    before = max(1, now.size - 1)
    gain = before * (found.rate(before + 1) / found.rate(before) - 1)
    word = "at least" if gain >= now.objective else "below"
    fitted = f"by the fitted curve the last member adds {gain:.0%} of an average one"
    return f"{fitted}, {word} minMarginalEfficiency {now.objective:.0%}"


def _compared(memory: Memory, size: int) -> str:
    """The present size and its nearest neighbours, with their rates."""
    others = [n for n in memory.rates if n != size]
    near = [max((n for n in others if n < size), default=None), min((n for n in others if n > size), default=None)]
    return ", ".join(_measured(memory, n) for n in sorted({size, *(n for n in near if n is not None)}))


def _measured(memory: Memory, size: int) -> str:
    return f"{size} members: {memory.rates[size].mean:.1f} samples/s"
