"""The climb of a search: growing by about twice as long as the measured throughput grows enough."""

from __future__ import annotations

import math
from statistics import NormalDist

from elasticjob_master.core.autoscale.candidate_sizes import next_larger
from elasticjob_master.core.autoscale.curve import error_of_ratio, relative_error
from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.measured_worth import compared_text, measured_text
from elasticjob_master.core.autoscale.moves import move, settle
from elasticjob_master.core.autoscale.objective_text import threshold_text
from elasticjob_master.core.autoscale.scaling_memory import MeasuredRate, ScalingMemory

_SURE = 0.8
"""The likelihood of meeting the objective with which a step follows at once."""
_WINDOWS = 2.0
"""After so many windows the climb goes by the mean, however close it is to the objective."""
_SLOWDOWN = 0.25
"""By how much an elasticity must be below the one before to show that the throughput is reaching a
limit.
"""
_EXACT_STEP = 0.15
"""The first size is measured until its relative error is at most this part of the step to the next
one.
"""


def climb(
    memory: ScalingMemory, now: ScalingInputs, bounds: Bounds, known: dict[int, MeasuredRate]
) -> tuple[ScalingDecision | None, bool]:
    """Grow while the measured elasticity of the throughput meets the objective.

    None: it does not, or is not known. The second result is whether the last step was a poor one. A
    single member communicates with nobody, so the step from it to a few says nothing about the next
    one.
    """
    size = now.size
    enough = now.objective.enough
    if enough is not None and known[size].mean >= enough:
        return None, True  # more would be of no use
    target = next_larger(size, bounds)
    lower = max((n for n in known if n < size), default=None)
    if lower is None and target <= size:
        return None, False
    if lower is None:
        facts = f"{measured_text(memory, size, now)}, no smaller size is known"
        if relative_error(known[size], memory.noise, known[size].at) > _EXACT_STEP * math.log(
            target / size
        ):
            return ScalingDecision(f"{facts}; measuring {size} again", memory), False
        return move(
            memory, now, bounds, target, facts, expected=known[size].mean * target / size
        ), False
    elasticity, error = _elasticity(known, lower, size, memory.noise)
    middle = math.sqrt(lower * size)
    least = now.objective.threshold(middle)
    likely = NormalDist().cdf((elasticity - least) / error)
    about = NormalDist().cdf((elasticity - least + now.objective.tolerance) / error)
    expected = known[size].mean * (target / size) ** max(0.0, min(1.0, elasticity))
    facts = (
        f"{compared_text(memory, size, now)}; each of the last members added {elasticity:.0%} of an average one "
        f"({threshold_text(now.objective, middle)})"
    )
    alone = lower == 1 and size <= 3  # 2 or 3 is what `next_larger` makes of 1
    clear = likely >= _SURE or (known[size].weight >= _WINDOWS and about >= 1 / 2)
    if target <= size:
        stays = (
            clear and now.window_is_over and not _slows_down(known, lower, elasticity, memory.noise)
        )
        return (settle(memory, now, bounds, facts) if stays else None), not clear
    if alone and not clear:
        expected = known[size].mean * target / size
    if alone or clear:
        return move(memory, now, bounds, target, facts, expected=expected), False
    if about > 1 - _SURE and known[size].weight < _WINDOWS:
        return ScalingDecision(f"{facts}; not clear yet, measuring {size} again", memory), False
    return None, True


def _slows_down(
    known: dict[int, MeasuredRate], lower: int, elasticity: float, noise: float
) -> bool:
    """Return whether the last step added clearly less than the one before.

    Then a size between may be as good.
    """
    before = max((n for n in known if n < lower), default=None)
    return before is None or elasticity < _elasticity(known, before, lower, noise)[0] - _SLOWDOWN


def _elasticity(
    known: dict[int, MeasuredRate], lower: int, size: int, noise: float
) -> tuple[float, float]:
    """Return the relative growth of the throughput per relative growth of the size, and its standard error."""
    step = math.log(size / lower)
    error = error_of_ratio(known[lower], known[size], noise, known[size].at)
    return math.log(known[size].mean / known[lower].mean) / step, max(1e-6, error / step)
