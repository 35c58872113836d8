"""Pods that the cluster cannot run: the job keeps the size it reached, and asks again later.

The pauses between two requests grow.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace

from msgspec import structs

from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision
from elasticjob_master.core.autoscale.scaling_memory import PlanResults, ScalingMemory
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


def after_unfulfilled_plan(memory: ScalingMemory, reached: int, wall: float) -> ScalingMemory:
    """Return the memory after a plan that reached a smaller size than it requested."""
    longest = math.ldexp(THRESHOLDS.pause_seconds, THRESHOLDS.doublings)
    pause = min(2 * memory.plans.pause_seconds, longest) or THRESHOLDS.pause_seconds
    plans = structs.replace(
        memory.plans, reached_size=reached, pause_seconds=pause, retry_at=wall + pause
    )
    memory = structs.replace(memory, plans=plans)
    # The plan has shown nothing about the best size, so it does not count.
    counted = max(0, memory.search.plans - 1)
    return memory.with_search(requested_size=reached, settled_size=None, plans=counted)


def after_failed_resource_plan(memory: ScalingMemory, wall: float) -> ScalingMemory:
    """Return the memory after a failed plan for CPU or memory."""
    retry_at = wall + THRESHOLDS.hour
    memory = memory.with_servers(trial=None, rates_stay_valid=False)
    return structs.replace(memory, resources=structs.replace(memory.resources, retry_at=retry_at))


def after_fulfilled_plan(memory: ScalingMemory, size: int) -> ScalingMemory:
    """Return the memory after a plan that reached its size; a larger one ends the pause."""
    reached = memory.plans.reached_size
    if reached is None or size <= reached:
        return memory
    return structs.replace(memory, plans=PlanResults(last_ended=memory.plans.last_ended))


def narrowed_bounds(bounds: Bounds, memory: ScalingMemory, wall: float) -> Bounds:
    """Return the bounds; during a pause, their maximum is the size that was reached."""
    plans = memory.plans
    reached = plans.reached_size
    if reached is None or wall >= plans.retry_at or reached >= bounds.maximum:
        return bounds
    limit = (
        f"no more than {reached} pods were available, which is tried again in "
        f"{plans.retry_at - wall:.0f} s; that"
    )
    maximum = max(reached, bounds.minimum)
    return replace(bounds, maximum=maximum, limit=limit, limit_is_temporary=True)


def fall_back(
    memory: ScalingMemory, missing: Collection[int], *, size: int, bounds: Bounds, wall: float
) -> ScalingDecision | None:
    """Return the decision to remove members that have been missing for too long.

    None: the bounds allow no smaller size. Of the indices that are missing, the highest stay if the
    minimum requires them.
    """
    removed = sorted(missing)[: max(0, size - bounds.minimum)]
    if not removed:
        return None
    new_size = size - len(removed)
    after = after_unfulfilled_plan(memory, new_size, wall)
    indices = ", ".join(map(str, removed[:10]))
    if len(removed) > 10:
        indices += ", …"
    reason = (
        f"{len(missing)} of {size} members have been missing for "
        f"{THRESHOLDS.pause_seconds:.0f} s (index {indices}): fall back to {new_size}; more are "
        f"requested again in {after.plans.pause_seconds:.0f} s"
    )
    return ScalingDecision(reason, after, remove=tuple(removed))
