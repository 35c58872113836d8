"""The climb of a search: it grows by about twice while the measured throughput grows enough."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist

from elasticjob_master.core.autoscale.candidate_sizes import next_larger
from elasticjob_master.core.autoscale.curve import error_of_ratio, relative_error
from elasticjob_master.core.autoscale.decision import ScalingDecision
from elasticjob_master.core.autoscale.measured_worth import (
    Situation,
    compared_text,
    measured_text,
)
from elasticjob_master.core.autoscale.moves import move, settle
from elasticjob_master.core.autoscale.objective_text import threshold_text
from elasticjob_master.core.autoscale.scaling_memory import MeasuredRate
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


def climb(at: Situation) -> ScalingDecision | None:
    """Grow while the measured elasticity of the throughput meets the objective.

    None: it does not, or it is unknown. A single member communicates with no other, so the step
    from one member to a few says nothing about the next step.
    """
    size = at.size
    known = at.known
    present = known[size]
    noise = at.memory.rates.noise
    objective = at.now.objective
    if objective.enough is not None and present.mean >= objective.enough:
        return None
    target = next_larger(size, at.bounds)
    lower = max((n for n in known if n < size), default=None)
    if lower is None:
        return _first_step(at, target)
    elasticity, error = _elasticity(known, lower, size, noise)
    middle = math.sqrt(lower * size)
    least = objective.threshold(middle)
    meets = NormalDist().cdf((elasticity - least) / error)
    fastest = max(rate.mean for n, rate in known.items() if n < size)
    nearly_meets = NormalDist().cdf((elasticity - least + objective.tolerance) / error)
    facts = (
        f"{compared_text(at)}; each of the last members added {elasticity:.0%} of an average one "
        f"({threshold_text(objective, middle)})"
    )
    measured_long = present.weight >= THRESHOLDS.climb_windows
    clear = meets >= THRESHOLDS.sure or (measured_long and nearly_meets >= 1 / 2)
    clear = clear and present.mean >= fastest
    alone = lower == 1 and size <= 3  # `next_larger` of 1 is 2 or 3
    if target <= size:
        if not clear or not at.now.window_is_over or _slows_down(known, lower, elasticity, noise):
            return None
        return settle(at, facts)
    if clear:
        expected = present.mean * (target / size) ** max(0.0, min(1.0, elasticity))
        return move(at, target, facts, expected=expected)
    if alone:
        return move(at, target, facts, expected=present.mean * target / size)
    if _is_abrupt(at, lower, elasticity + error) and target >= THRESHOLDS.smallest_step * size:
        facts += ", an abrupt change, beyond which the throughput may grow again"
        return move(at, target, facts, expected=present.mean * target / size)
    return None


def _is_abrupt(at: Situation, lower: int, elasticity: float) -> bool:
    """Return whether the throughput stops to grow at once, as where members need a second node.

    Beyond it the throughput may grow again, and one larger size shows whether it does. After that
    one the step before is a poor one, so no other probe follows.
    """
    earlier = _elasticity_before(at.known, lower, at.memory.rates.noise)
    if earlier is None or max(at.known) > at.size:
        return False  # a look has dropped the rates of smaller sizes; a larger one has been tried
    return elasticity <= THRESHOLDS.abrupt and earlier >= THRESHOLDS.abrupt_before


def _first_step(at: Situation, target: int) -> ScalingDecision | None:
    """Grow from the smallest known size as soon as its rate is exact enough to show the gain.

    None: the maximum is so near that fewer members are tried first.
    """
    size = at.size
    if target < THRESHOLDS.smallest_step * size:
        return None  # so small a step shows nothing: it is as at the maximum
    rate = at.known[size]
    facts = f"{measured_text(at.memory, size, at.now)}, no smaller size is known"
    error = relative_error(rate, at.memory.rates.noise, rate.at)
    if error > THRESHOLDS.first_step_error * math.log(target / size):
        return ScalingDecision(f"{facts}; measuring {size} again", at.memory)
    return move(at, target, facts, expected=rate.mean * target / size)


def _slows_down(
    known: Mapping[int, MeasuredRate], lower: int, elasticity: float, noise: float
) -> bool:
    """Return whether the last step added clearly less than the one before.

    Then a size between may be as good.
    """
    earlier = _elasticity_before(known, lower, noise)
    return earlier is None or elasticity < earlier - THRESHOLDS.slowdown


def _elasticity_before(known: Mapping[int, MeasuredRate], lower: int, noise: float) -> float | None:
    """Return the elasticity of the step to `lower`; None: no smaller size is known."""
    before = max((n for n in known if n < lower), default=None)
    return None if before is None else _elasticity(known, before, lower, noise)[0]


def _elasticity(
    known: Mapping[int, MeasuredRate], lower: int, size: int, noise: float
) -> tuple[float, float]:
    """Return the relative growth of the throughput per relative growth of the size, and its error."""
    step = math.log(size / lower)
    error = error_of_ratio(known[lower], known[size], noise, known[size].at)
    return math.log(known[size].mean / known[lower].mean) / step, max(1e-6, error / step)
