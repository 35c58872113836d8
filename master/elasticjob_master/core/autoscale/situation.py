"""What the choice of a size goes by, and when a settled size is chosen again.

That is when the objective was changed, its finish time needs another size, the size was the largest
one allowed and larger ones are allowed now, or it is time to look at a larger one. Windows between
two comparisons with the finish time are counted, not timed: a clock that is set right costs at most
two plans.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

from elasticjob_master.core.autoscale.decision import Bounds, ScalingInputs
from elasticjob_master.core.autoscale.measurements import begin_search
from elasticjob_master.core.autoscale.objective import rate_text
from elasticjob_master.core.autoscale.scaling_memory import (
    MeasuredRate,
    ScalingMemory,
    SizeSearch,
)
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS

_PLANS = THRESHOLDS.search_plans // 2


@dataclass(frozen=True)
class Situation:
    """The facts that the choice of a size uses.

    Attributes:
        memory: the state, with a measurement of the present size.
        now: the job's present state.
        bounds: the sizes allowed, which may be narrower than the job's own for a while.
    """

    memory: ScalingMemory
    now: ScalingInputs
    bounds: Bounds

    @property
    def size(self) -> int:
        """The present size."""
        return self.now.size

    @property
    def search(self) -> SizeSearch:
        """The state of the search."""
        return self.memory.search

    @property
    def known(self) -> dict[int, MeasuredRate]:
        """The sizes at which the job trains, with their rates."""
        return {n: rate for n, rate in self.memory.rates.by_size.items() if rate.mean > 0}

    @property
    def waits_for_more(self) -> bool:
        """True if only a temporary limit keeps the job from being larger."""
        return self.bounds.limit_is_temporary and self.size >= self.bounds.maximum

    @property
    def is_exact(self) -> bool:
        """True if the present size is measured as long as a decision may need."""
        needed = (self.memory.rates.noise / THRESHOLDS.exact) ** 2
        windows = min(max(THRESHOLDS.least_windows, needed), THRESHOLDS.most_windows)
        return self.now.window_is_over and self.known[self.size].weight >= windows


def compared_text(at: Situation) -> str:
    """Return a text: the present size and its measured neighbours, with their rates."""
    smaller = [n for n in at.known if n < at.size]
    larger = [n for n in at.known if n > at.size]
    sizes = [*sorted(smaller)[-1:], at.size, *sorted(larger)[:1]]
    text = ", ".join(measured_text(at.memory, n, at.now) for n in sizes)
    objective = at.now.objective
    if objective.needed is not None and objective.enough is not None:
        text += (
            f"; finishTime needs {objective.needed:.1f} samples/s, {objective.enough:.1f} with a "
            "reserve"
        )
    if objective.kind == "Deadline" and objective.by_efficiency:
        text += "; the training reports no total of steps, which Deadline needs"
    return text


def measured_text(memory: ScalingMemory, size: int, now: ScalingInputs) -> str:
    """Return a text: a size with its rate, and what that means for the objective."""
    return f"{size} members: {rate_text(now.objective, memory.rates.mean(size), size)}"


def reopened(at: Situation) -> ScalingMemory:
    """Return the memory at the beginning of another search if there is a reason, else as it is."""
    memory = at.memory
    search = memory.search
    key = at.now.objective.key
    if search.objective_key != key:
        memory = memory.with_search(objective_key=key)
        return begin_search(memory, at.size) if search.objective_key else memory
    enough = at.now.objective.enough
    too_slow = enough is None or memory.rates.mean(at.size) < enough
    if search.at_maximum and search.settled_size == at.size < at.bounds.maximum and too_slow:
        return begin_search(memory, at.size)
    if search.settled_size is None or not at.now.window_is_over:
        return memory
    again = _look(at) if enough is None else _for_finish_time(at, enough)
    return again or memory.with_search(settled_windows=search.settled_windows + 1)


def _look(at: Situation) -> ScalingMemory | None:
    """Return the memory as a search among larger sizes begins, once the rest has paid for it.

    What gets better beyond the present size does not show there.
    """
    if at.size >= at.bounds.maximum:
        return None
    measured = THRESHOLDS.trial_part * at.now.window_seconds
    cost = 2 * at.memory.rates.rescale_seconds + measured
    rest = cost / THRESHOLDS.least_gain / at.now.window_seconds
    if at.search.settled_windows + 1 < at.search.patience * rest:
        return None
    # What was measured of larger sizes may not hold any more.
    rates = {n: rate for n, rate in at.memory.rates.by_size.items() if n <= at.size}
    memory = begin_search(at.memory, at.size, rates=rates, most_plans=_PLANS // 2)
    return memory.with_search(drifted_from=at.size)


def _for_finish_time(at: Situation, enough: float) -> ScalingMemory | None:
    """Return the memory at the beginning of another search if the finish time needs another size.

    If no size could meet it when the search ended, the search has found the fastest size.
    """
    strays = at.memory.rates.strays
    present = at.known[at.size]
    rates = None
    if len(strays) > THRESHOLDS.least_windows:
        # The rates before the change do not hold.
        present = MeasuredRate(fmean(strays), len(strays), at.now.wall)
        rates = {at.size: present}
    needed = at.now.objective.needed or 0.0
    windows = at.search.settled_windows
    larger = any(n > at.size and known.mean >= needed for n, known in at.known.items())
    could_be_met = larger or at.search.needed_rate <= at.search.settled_rate
    late = present.mean < needed * (1 + THRESHOLDS.noticeable) and at.size < at.bounds.maximum
    early = enough * THRESHOLDS.reserve < present.mean and at.size > at.bounds.minimum
    if late and could_be_met:
        again = windows > THRESHOLDS.least_windows
    else:
        in_time = at.now.horizon >= THRESHOLDS.hour
        again = early and in_time and windows >= 2 * THRESHOLDS.most_windows
    if not again:
        return None
    return begin_search(at.memory, at.size, rates=rates, most_plans=_PLANS)
