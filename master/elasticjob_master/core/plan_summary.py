"""What is told of a job's ScalePlans, whoever made them."""

from __future__ import annotations

from dataclasses import dataclass

MOST_PLANS = 50


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """A ScalePlan, in short. Times are seconds since the epoch; 0: not yet."""

    name: str
    source: str
    phase: str
    reason: str = ""
    message: str = ""
    created: float = 0.0
    completed: float = 0.0
