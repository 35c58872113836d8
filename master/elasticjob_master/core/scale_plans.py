"""The ScalePlans of a job that the master shows to clients."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from elasticjob_api.scaleplan import FINISHED, ScalePlan

MOST_PLANS = 50


def latest_plans(plans: Iterable[ScalePlan]) -> list[ScalePlan]:
    """Return plans, oldest first. If there are too many, the oldest finished ones are left out."""

    def age(plan: ScalePlan) -> tuple[str, str]:
        return plan.metadata.creation_timestamp or "", plan.metadata.name

    def importance(plan: ScalePlan) -> tuple[bool, str, str]:
        return plan.status.phase not in FINISHED, *age(plan)

    return sorted(heapq.nlargest(MOST_PLANS, plans, key=importance), key=age)
