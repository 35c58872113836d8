"""What a size means for the objective, in the words of plans' reasons and of queries."""

from __future__ import annotations

from elasticjob_api.times import format_time

from elasticjob_master.core.autoscale.objective import Objective

_MINUTE = 60.0
_HOUR = 3600.0
_DAY = 86400.0
_LAST = 253402300799.0
"""The end of the year 9999."""


def threshold_text(objective: Objective, size: float) -> str:
    """Return a text: what a further member must add, and why so much."""
    least = f"{objective.threshold(size):.0%}"
    if objective.kind == "Efficiency":
        return f"minMarginalEfficiency {least}"
    if objective.kind == "Cost":
        return f"{least}, nearly its part of the price"
    if objective.by_efficiency:
        return f"{least}, as the training reports no total of steps that objective Deadline could go by"
    return f"{least}, the least that objective {objective.kind} notices"


def meaning_text(objective: Objective, rate: float, size: int) -> str:
    """Return a text: when a size with this rate ends the training, or what its samples cost.

    Empty: nothing to say.
    """
    if objective.kind == "Cost" and rate > 0:
        return f"{objective.cost(rate, size):.4g} for a million samples"
    end = objective.end(rate)
    if end is None:
        return ""
    early = objective.finish_at - end
    return f"ends {clock_text(end)}, {_duration(abs(early))} {'before' if early >= 0 else 'after'} finishTime"


def rate_text(objective: Objective, rate: float, size: int) -> str:
    """Return a text: the rate, and in short what it means."""
    text = f"{rate:.1f} samples/s"
    if objective.kind == "Cost" and rate > 0:
        return f"{text} at {meaning_text(objective, rate, size)}"
    end = objective.end(rate)
    return text if end is None else f"{text}, ends {clock_text(end)}"


def objective_text(objective: Objective, rate: float, size: int) -> str:
    """Return a text.

    The objective, and what the present size, with this rate or 0 if it is not known, means for it.
    """
    means = meaning_text(objective, rate, size)
    present = f"; {size} members: {means}" if means else ""
    if objective.kind == "Cost":
        return f"Cost: {objective.price:g} an hour for a member, {objective.others:g} for all of the other roles{present}"
    if objective.kind != "Deadline":
        return (
            objective.kind
            if objective.kind == "Throughput"
            else f"Efficiency: at least {objective.efficiency:.0%}"
        )
    finish = f"Deadline: finishTime {clock_text(objective.finish_at)}"
    if objective.needed is None:
        return f"{finish}; the training reports no total of steps, so it is as Efficiency with {objective.efficiency:.0%}"
    if objective.rest is not None and objective.finish_at <= objective.rest.wall:
        return f"{finish} has passed, so it is as Throughput{present}"
    return f"{finish} needs {objective.needed:.1f} samples/s{present}"


def clock_text(seconds: float) -> str:
    """Return a time as `finishTime` has it, but to the minute."""
    return f"{format_time(min(max(0.0, seconds), _LAST))[:16]}Z"


def _duration(seconds: float) -> str:
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.1f} h" if seconds < 2 * _DAY else f"{seconds / _DAY:.0f} days"
