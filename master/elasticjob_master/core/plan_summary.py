"""The summary of a ScalePlan that the master shows to clients, whoever created the plan."""

from __future__ import annotations

from dataclasses import dataclass

MOST_PLANS = 50


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """A ScalePlan. Times are in seconds since the epoch; 0: not yet."""

    name: str
    source: str
    phase: str
    reason: str = ""
    message: str = ""
    created: float = 0.0
    completed: float = 0.0
