"""The ScalePlans of a job as the master shows them to clients."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_api.times import parse_time

MOST_PLANS = 50


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """A ScalePlan as clients see it.

    Times are in seconds since the epoch; 0: not yet.
    """

    name: str
    source: str
    phase: str
    reason: str = ""
    message: str = ""
    created: float = 0.0
    completed: float = 0.0


def summaries(plans: Iterable[ScalePlan]) -> list[PlanSummary]:
    """Return plans in short, oldest first.

    If there are too many, the oldest finished ones are left out.
    """
    latest = heapq.nlargest(
        MOST_PLANS,
        plans,
        key=lambda plan: (
            plan.status.phase not in FINISHED,
            plan.metadata.creation_timestamp or "",
            plan.metadata.name,
        ),
    )
    found = [
        PlanSummary(
            name=each.metadata.name,
            source=each.spec.source,
            phase=each.status.phase or "Pending",
            reason=each.spec.reason,
            message=each.status.message,
            created=_seconds(each.metadata.creation_timestamp),
            completed=_seconds(each.status.completion_time),
        )
        for each in latest
    ]
    return sorted(found, key=lambda plan: (plan.created, plan.name))


def _seconds(time: str | None) -> float:
    return parse_time(time) if time else 0.0
