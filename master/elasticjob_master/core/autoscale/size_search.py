"""The choice of the number of members: one rule on top of the model of `posterior`.

Of the measured sizes, the incumbent is expected to be worth most. Another size is tried if what it
is expected to gain until the job ends, at most for some hours, exceeds what the trial costs: two
rescales, or one if it succeeds, and what is lost while it is measured. Only the gains count in the
expectation, as the job returns from a loss (expected improvement). A trial is left, for the next
one or back to the incumbent, as soon as a part of a window shows that it is surely worse. When no
trial pays, the search settles.

After it has settled, only a change made by another actor, another setting, a lasting change of the
throughput or a look begin a new search; see `measurements` and `situation`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elasticjob_master.core.autoscale.decision import (
    Bounds,
    ScalingDecision,
    ScalingInputs,
    candidates,
    is_allowed,
)
from elasticjob_master.core.autoscale.measurements import with_settled
from elasticjob_master.core.autoscale.objective import meaning_text
from elasticjob_master.core.autoscale.posterior import Gain, Posterior, fit, variance
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory
from elasticjob_master.core.autoscale.situation import (
    Situation,
    compared_text,
    measured_text,
    reopened,
)
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


def next_size(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds) -> ScalingDecision:
    """Return the next size to try, or that the search measures again or settles.

    The present size is measured; the bounds may be narrower than the job's own for a while.
    """
    size = now.size
    memory = reopened(Situation(memory, now, bounds))
    at = Situation(memory, now, bounds)
    measured = measured_text(memory, size, now)
    if memory.search.settled_size is not None:
        return ScalingDecision(f"{measured}; settled at {size}", memory)
    if now.rate_rises:
        return ScalingDecision(f"{measured}, which still rises; measuring {size} again", memory)
    if at.waits_for_more and bounds.maximum <= bounds.minimum:
        return ScalingDecision(f"{measured}; {bounds.limit}", memory)
    if bounds.maximum <= bounds.minimum or size < bounds.minimum:
        return _settle(at, f"{measured}; {bounds.limit} allows no other size")
    if size not in at.known:
        return ScalingDecision(f"{size} members train nothing", memory)
    return _by_model(at)


@dataclass(frozen=True)
class Trial:
    """A size to try.

    Attributes:
        value: the seconds of training that it is expected to save, less those that it costs.
        size: the number of members.
        gain: what it is worth more than the incumbent.
    """

    value: float
    size: int
    gain: Gain


def _by_model(at: Situation) -> ScalingDecision:
    """Return what the model recommends."""
    size = at.size
    sizes = candidates(at.bounds, size, at.known)
    posterior = fit(at.known, at.memory.rates.noise, sizes, at.memory.rates.node)
    incumbent = _incumbent(at, posterior)
    facts = compared_text(at)
    if at.waits_for_more and incumbent == size:
        return ScalingDecision(f"{facts}; {at.bounds.limit}", at.memory)
    longest = THRESHOLDS.lasting * THRESHOLDS.hour / 2
    horizon = min(longest, at.now.horizon)
    gains = _gains(at, posterior, incumbent, sizes)
    trial = _best_trial(at, gains, horizon)
    if trial is not None:
        if _may_leave(at, posterior, incumbent, trial):
            return _try(at, posterior, incumbent, trial, facts)
        return _again(at, f"{facts}; not exact enough to try {trial.size}")
    if incumbent != size:
        back = posterior.gain(incumbent, size, at.now.objective)
        if back.likelihood < THRESHOLDS.surely and not at.is_exact:
            return _again(at, f"{facts}; {incumbent} may be better")
        most = at.search.most_plans + THRESHOLDS.search_plans // 4
        if at.search.plans < most:
            cost = at.memory.rates.rescale_seconds
            if back.gain * (horizon - cost) < cost:
                return _does_not_pay(at, incumbent, facts)
            reason = f"{facts}: back to {incumbent}, the best that was measured"
            return _requested(at, incumbent, reason)
    if not at.is_exact:
        return _again(at, facts)
    unpaid = _best_trial(at, gains, longest)
    if unpaid is not None:
        return _does_not_pay(at, unpaid.size, facts)
    return _settle(at, f"{facts}; no other size promises more than it costs to try")


def _incumbent(at: Situation, posterior: Posterior) -> int:
    """Return the measured size that is expected to be worth most; the largest of nearly equal."""
    known = [n for n in at.known if is_allowed(n, at.bounds)]
    worths = {n: posterior.worth(n, at.now.objective) for n in known}
    if not worths:
        return at.size
    best = max(worths, key=lambda n: worths[n])
    return max(n for n in known if n >= best and worths[n] >= worths[best] - _bonus(at, n, best))


def _bonus(at: Situation, size: int, other: int) -> float:
    """Return what the larger one of two sizes may be worth less and still be preferred.

    Where the objective hardly distinguishes them, the faster one is better.
    """
    if not at.now.objective.by_efficiency and at.now.objective.kind != "Cost":
        return 0.0
    slope = THRESHOLDS.worthwhile * math.log(size / other)
    return max(-THRESHOLDS.noticeable, min(THRESHOLDS.noticeable, slope))


def _gains(
    at: Situation, posterior: Posterior, incumbent: int, sizes: Sequence[int]
) -> Mapping[int, Gain]:
    """Return what each size that may be tried is worth more than the incumbent."""
    if at.search.plans >= at.search.most_plans:
        return {}
    most = THRESHOLDS.largest_step * max(at.known)
    # A size of which only a part of a window is known may still be better than it seemed.
    measured = {n for n, known in at.known.items() if known.weight >= 1}
    return {
        n: posterior.gain(n, incumbent, at.now.objective, _bonus(at, n, incumbent))
        for n in sizes
        if n <= most and n not in measured and n not in (at.size, incumbent)
    }


def _best_trial(at: Situation, gains: Mapping[int, Gain], horizon: float) -> Trial | None:
    """Return the trial of the highest value if a gain counts for `horizon` seconds; else None."""
    cost = at.memory.rates.rescale_seconds
    look = THRESHOLDS.trial_part * at.now.window_seconds
    trials = []
    for size, gain in gains.items():
        value = gain.gain * (horizon - cost) - THRESHOLDS.least_gain * horizon
        value -= (2 - gain.likelihood) * cost + look * gain.loss
        trials.append(Trial(value, size, gain))
    best = max(trials, key=lambda trial: trial.value, default=None)
    return None if best is None or best.value <= 0 else best


def _may_leave(at: Situation, posterior: Posterior, incumbent: int, trial: Trial) -> bool:
    """Return whether the present size is measured well enough to try another one.

    It is if it is surely worse than the incumbent, or if its error is small beside the difference
    that the trial may show.
    """
    if at.is_exact:
        return True
    if at.size != incumbent:
        back = posterior.gain(incumbent, at.size, at.now.objective)
        if back.likelihood >= THRESHOLDS.surely:
            return True
    present = at.known[at.size]
    error = math.sqrt(variance(present, at.memory.rates.noise, present.at))
    return error < THRESHOLDS.clear_error * trial.gain.spread


def _try(
    at: Situation, posterior: Posterior, incumbent: int, trial: Trial, facts: str
) -> ScalingDecision:
    """Request a size to see what it is worth."""
    target = trial.size
    rate = posterior.rate(target)
    action = "grow to" if target > at.size else "shrink to"
    bound = ""
    if target == at.bounds.maximum < 2 * at.size and target > at.size:
        bound = f", bounded by {at.bounds.limit}"
    text = f"{rate:.1f} samples/s expected"
    if means := meaning_text(at.now.objective, rate, target):
        text += f": {means}"
    reason = (
        f"{facts}; {target} is better than {incumbent} with a likelihood of "
        f"{trial.gain.likelihood:.0%}, which promises {trial.gain.gain:.1%}: {action} "
        f"{target}{bound}, {text}"
    )
    return _requested(at, target, reason)


def _does_not_pay(at: Situation, target: int, facts: str) -> ScalingDecision:
    cost = at.memory.rates.rescale_seconds
    reason = (
        f"{facts}; {target} members would be tried, but a rescale costs {cost:.0f} s, and they "
        f"save less in the {at.now.horizon:.0f} s left"
    )
    return ScalingDecision(reason, at.memory)


def _requested(at: Situation, target: int, reason: str) -> ScalingDecision:
    """Return the decision to request a size."""
    after = at.memory.with_search(requested_size=target, plans=at.search.plans + 1)
    return ScalingDecision(reason, after, size=target)


def _again(at: Situation, facts: str) -> ScalingDecision:
    if not at.now.window_is_over:
        return ScalingDecision(f"{facts}, so far", at.memory)
    return ScalingDecision(f"{facts}; measuring {at.size} again", at.memory)


def _settle(at: Situation, facts: str) -> ScalingDecision:
    """Settle at the present size."""
    size = at.size
    needed = at.now.objective.needed
    at_maximum = size >= at.bounds.maximum
    after = with_settled(at.memory, size, at_maximum=at_maximum, needed=needed)
    reason = facts
    if size == at.bounds.maximum:
        reason += f"; {at.bounds.limit} allows no more than {size}"
    reason += f"; settled at {size}"
    rate = at.memory.rates.mean(size)
    if means := meaning_text(at.now.objective, rate, size):
        reason += f": {means}"
    if needed is not None and rate < needed:
        reason += "; no size is expected to make it, so it is as Throughput"
    return ScalingDecision(reason, after)
