"""Describes a size's effect on the objective, for plans' reasons and for queries."""

from __future__ import annotations

from elasticjob_api.times import format_time

from elasticjob_master.core.autoscale.objective import Objective

_MINUTE = 60.0
_HOUR = 3600.0
_DAY = 86400.0
_END_OF_YEAR_9999 = 253402300799.0


def meaning_text(objective: Objective, rate: float, size: int) -> str:
    """Return a text: when a size with this rate ends the training, or what its samples cost.

    The text is empty for other objectives.
    """
    if objective.kind == "Cost" and rate > 0:
        return f"{objective.cost(rate, size):.4g} for a million samples"
    end = objective.end(rate)
    if end is None:
        return ""
    early = objective.finish_at - end
    order = "before" if early >= 0 else "after"
    return f"ends {clock_text(end)}, {_duration(abs(early))} {order} finishTime"


def rate_text(objective: Objective, rate: float, size: int) -> str:
    """Return a text with the rate and its meaning in short."""
    text = f"{rate:.1f} samples/s"
    if objective.kind == "Cost" and rate > 0:
        return f"{text} at {meaning_text(objective, rate, size)}"
    end = objective.end(rate)
    return text if end is None else f"{text}, ends {clock_text(end)}"


def objective_text(objective: Objective, rate: float, size: int) -> str:
    """Return a text: the objective, and what the present size means for it.

    Args:
        objective: the objective.
        rate: samples per second of the present size; 0 if unknown.
        size: the present size.
    """
    means = meaning_text(objective, rate, size)
    present = f"; {size} members: {means}" if means else ""
    if objective.kind == "Efficiency":
        return f"Efficiency: at least {objective.efficiency:.0%}"
    if objective.kind == "Throughput":
        return "Throughput"
    if objective.kind == "Cost":
        return (
            f"Cost: {objective.price:g} an hour for a member, {objective.others:g} for all of the "
            f"other roles{present}"
        )
    finish = f"Deadline: finishTime {clock_text(objective.finish_at)}"
    if objective.needed is None:
        return (
            f"{finish}; the training reports no total of steps, so it is as Efficiency with "
            f"{objective.efficiency:.0%}"
        )
    if objective.rest is not None and objective.finish_at <= objective.rest.wall:
        return f"{finish} has passed, so it is as Throughput{present}"
    return f"{finish} needs {objective.needed:.1f} samples/s{present}"


def clock_text(seconds: float) -> str:
    """Return a time in the format of `finishTime`, but to the minute."""
    return f"{format_time(min(max(0.0, seconds), _END_OF_YEAR_9999))[:16]}Z"


def _duration(seconds: float) -> str:
    if seconds < 2 * _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds / _HOUR:.1f} h"
    return f"{seconds / _DAY:.0f} days"
