"""The plans of a search: to another size, back to a measured one, or none, because it settles."""

from __future__ import annotations

from elasticjob_master.core.autoscale.decision import ScalingDecision
from elasticjob_master.core.autoscale.measured_worth import Situation, clearly_better
from elasticjob_master.core.autoscale.measurements import with_settled
from elasticjob_master.core.autoscale.objective_text import meaning_text
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


def move(at: Situation, target: int, facts: str, *, expected: float) -> ScalingDecision:
    """Request a size, if the change pays in the remaining training time.

    Args:
        at: the situation.
        target: the size.
        facts: the beginning of the reason.
        expected: samples per second at that size.
    """
    size = at.size
    objective = at.now.objective
    cost = at.memory.rates.rescale_seconds
    horizon = at.now.horizon
    grows = target > size
    gain = expected / at.rate(size) - 1
    saved = gain
    kind = "throughput"
    if not grows and 1 - target / size > gain:  # fewer members are left for other jobs
        saved = 1 - target / size
        kind = "members"
    # A return to a faster measured size is no trial: it pays as soon as it saves its cost.
    trial = target not in at.memory.rates.by_size or gain <= 0
    is_short = trial and not grows and 2 * cost > THRESHOLDS.resources_cost * horizon
    if is_short or saved * max(0.0, horizon - cost) < cost:
        why = f"a rescale costs {cost:.0f} s, and "
        why += (
            f"two cost more than {THRESHOLDS.resources_cost:.0%} of the {horizon:.0f} s left"
            if is_short
            else f"{max(0.0, saved):.0%} of {kind} save less in {horizon:.0f} s"
        )
        reason = f"{facts}; {target} members would be tried, but {why}"
        return ScalingDecision(reason, at.memory)
    direction = 1 if grows else -1
    after = at.memory.with_search(
        requested_size=target,
        direction=direction,
        turned=at.search.turned or at.search.direction == -direction,
        plans=at.search.plans + 1,
    )
    action = "shrink to"
    if grows:
        action = "grow to"
    elif target in at.memory.rates.by_size:
        action = "back to"
    bound = ""
    if grows and target == at.bounds.maximum < 2 * size:
        bound = f", bounded by {at.bounds.limit}"
    text = "to see what they add"
    if len(at.memory.rates.by_size) > 1:
        text = f"{expected:.1f} samples/s expected"
        if means := meaning_text(objective, expected, target):
            text += f": {means}"
    if at.search.looks and not at.search.plans:
        text += f"; this look costs about {2 * cost:.0f} s, at most {THRESHOLDS.look_cost:.0%} of the rest"
    return ScalingDecision(f"{facts}: {action} {target}{bound}, {text}", after, size=target)


def go_back(at: Situation, size: int, facts: str) -> ScalingDecision:
    """Go back to a measured size, to stay there unless measuring it again says otherwise."""
    decision = move(at, size, facts, expected=at.rate(size))
    if decision.changes_nothing:
        return decision
    plans = max(decision.memory.search.plans, THRESHOLDS.search_plans)
    after = decision.memory.with_search(turned=True, plans=plans)
    return ScalingDecision(f"{facts}: back to {size}, the best that was measured", after, size=size)


def settle(at: Situation, facts: str) -> ScalingDecision:
    """Settle at the present size, or go back to a measured one that is clearly better.

    At a temporary limit the search continues.
    """
    size = at.size
    at_maximum = size >= at.bounds.maximum
    if at.bounds.limit_is_temporary and at_maximum:
        return ScalingDecision(f"{facts}; {at.bounds.limit}", at.memory)
    most = THRESHOLDS.search_plans + THRESHOLDS.search_returns
    if at.now.window_is_over and at.search.plans < most:
        found = clearly_better(at)
        returned = None if found is None else go_back(at, found, facts)
        if returned is not None and not returned.changes_nothing:
            return returned
    needed = at.now.objective.needed
    after = with_settled(at.memory, size, at_maximum=at_maximum, needed=needed)
    reason = facts
    if size == at.bounds.maximum:
        reason += f"; {at.bounds.limit} allows no more than {size}"
    reason += f"; settled at {size}"
    rate = at.rate(size)
    if means := meaning_text(at.now.objective, rate, size):
        reason += f": {means}"
    if needed is not None and rate < needed:
        reason += "; no size is expected to make it, so it is as Throughput"
    return ScalingDecision(reason, after)
