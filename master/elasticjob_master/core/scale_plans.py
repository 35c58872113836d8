"""The job's ScalePlans, whoever created them, and the numbers of those of its auto-scaler."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from elasticjob_api.scaleplan import FINISHED, ScalePlan
from elasticjob_api.times import parse_time

MOST_PLANS = 50


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """What the master shows of a ScalePlan to clients.

    Times are in seconds since the epoch; 0: not yet.
    """

    name: str
    source: str
    phase: str
    reason: str = ""
    message: str = ""
    created: float = 0.0
    completed: float = 0.0


class ScalePlans:
    """All ScalePlans of the job that the cluster has, and what the auto-scaler has to know to create the next one.

    Attributes:
        last_number: of the auto-scaler's plans, the highest that this or an earlier master has used.
        requested: the auto-scaler has decided on a plan, and it is being created.
    """

    def __init__(self) -> None:
        self.last_number = 0
        self.requested = False
        self._plans: dict[str, tuple[int | None, ScalePlan]] = {}
        self._summaries: Sequence[PlanSummary] = ()

    @property
    def next_number(self) -> int:
        """The number of the auto-scaler's next plan."""
        return self.last_number + 1

    def use_number(self, number: int) -> None:
        """Never use this number, or a lower one, for another plan."""
        self.last_number = max(self.last_number, number)

    def request_answered(self, *, used_number: int | None) -> None:
        """The requested plan was created, or could not be.

        `used_number`: a plan has this number now.
        """
        self.requested = False
        if used_number is not None:
            self.use_number(used_number)

    def restore(self, last_number: int) -> None:
        """Go on after the plans of an earlier master."""
        self.last_number = last_number

    def put(self, plan: ScalePlan, number: int | None) -> None:
        """Take a plan as it is now; `number` is that of a plan of the job's auto-scaler."""
        self._plans[plan.metadata.uid] = (number, plan)
        self._summaries = summaries(self)

    def remove(self, uid: str) -> None:
        """Forget a plan that was deleted."""
        self._plans.pop(uid, None)
        self._summaries = summaries(self)

    def __iter__(self) -> Iterator[ScalePlan]:
        return (plan for _, plan in self._plans.values())

    def unfinished(self) -> list[ScalePlan]:
        """Return the plans that wait or are being executed."""
        return [plan for plan in self if plan.status.phase not in FINISHED]

    def numbered(self) -> list[tuple[int, ScalePlan]]:
        """Return the auto-scaler's plans with their numbers, the first one first."""
        own = [(number, plan) for number, plan in self._plans.values() if number]
        return sorted(own, key=lambda item: item[0])

    def summaries(self) -> Sequence[PlanSummary]:
        """Return the plans in short, oldest first, and no more than `MOST_PLANS` of them."""
        return self._summaries


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
