"""The plans of a search.

To another size, back to a measured one, or none any more, as it has settled.
"""

from __future__ import annotations

from msgspec.structs import replace

from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.measured_worth import clearly_better, size_between
from elasticjob_master.core.autoscale.objective_text import meaning_text
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory, with_settled

MOST_MOVES = 8
_MOST_RETURNS = 2
"""The most plans of one search, and how many more may bring it back to a size that was better."""


def move(
    memory: ScalingMemory,
    now: ScalingInputs,
    bounds: Bounds,
    target: int,
    facts: str,
    *,
    expected: float,
) -> ScalingDecision:
    """Request a size if the change pays in the remaining training time; `expected` is its rate."""
    size = now.size
    cost = memory.cost
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
    text = (
        _expected_text(now, target, expected) if len(memory.rates) > 1 else "to see what they add"
    )
    action = "grow to" if grows else "back to" if target in memory.rates else "shrink to"
    return ScalingDecision(f"{facts}: {action} {target}{bound}, {text}", after, size=target)


def go_back(
    memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, size: int, facts: str
) -> ScalingDecision:
    """Go back to a measured size, to stay there unless measuring it again says otherwise.

    On the way down the size between is tried first.
    """
    between = size_between(memory, now, bounds, size)
    if between is not None and memory.moves < MOST_MOVES and not memory.turned:
        return move(memory, now, bounds, between, facts, expected=memory.rates[size])
    decision = move(memory, now, bounds, size, facts, expected=memory.rates[size])
    if decision.changes_nothing:
        return decision
    after = replace(decision.memory, turned=True, moves=max(decision.memory.moves, MOST_MOVES))
    return ScalingDecision(f"{facts}: back to {size}, the best that was measured", after, size=size)


def settle(
    memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, facts: str
) -> ScalingDecision:
    """Settle at the present size, or return to a measured one that is worth clearly more.

    At a temporary limit the search goes on.
    """
    if bounds.limit_is_temporary and now.size >= bounds.maximum:
        return ScalingDecision(f"{facts}; {bounds.limit}", memory)
    may_return = now.window_is_over and memory.moves < MOST_MOVES + _MOST_RETURNS
    found = clearly_better(memory, now, bounds) if may_return else None
    if found is not None:
        returned = go_back(memory, now, bounds, found, facts)
        if not returned.changes_nothing:
            return returned
    after = with_settled(
        memory, now.size, bounded=now.size >= bounds.maximum, needed=now.objective.needed
    )
    bound = (
        f"; {bounds.limit} allows no more than {bounds.maximum}"
        if now.size == bounds.maximum
        else ""
    )
    return ScalingDecision(f"{facts}{bound}; settled at {now.size}{_outlook(memory, now)}", after)


def _expected_text(now: ScalingInputs, target: int, expected: float) -> str:
    means = meaning_text(now.objective, expected, target)
    return f"{expected:.1f} samples/s expected" + (f": {means}" if means else "")


def _outlook(memory: ScalingMemory, now: ScalingInputs) -> str:
    """Return what the size that was found means for the objective."""
    rate = memory.rates[now.size]
    means = meaning_text(now.objective, rate, now.size)
    late = now.objective.needed is not None and rate < now.objective.needed
    return (f": {means}" if means else "") + (
        "; no size is expected to make it, so it is as Throughput" if late else ""
    )
