"""Pods that the cluster cannot run.

The size reached is kept, and more are requested after pauses that grow.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from msgspec import structs

from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory

MISSING_SECONDS = 900.0
"""How long members may be missing while the others train, until the job falls back to the members
it has.
"""
_FIRST_PAUSE = 600.0
_LONGEST_PAUSE = 6 * 3600.0
_RESOURCES_PAUSE = 3600.0


def after_unfulfilled_plan(memory: ScalingMemory, had: int, wall: float) -> ScalingMemory:
    """Return the memory after a plan that did not get all its pods, but reached the size `had`."""
    pause = min(2 * memory.pause, _LONGEST_PAUSE) if memory.pause else _FIRST_PAUSE
    moves = max(0, memory.moves - 1)  # the plan has shown nothing about the best size
    return structs.replace(
        memory, asked=had, settled=None, moves=moves, had=had, pause=pause, retry_at=wall + pause
    )


def after_failed_resource_plan(memory: ScalingMemory, wall: float) -> ScalingMemory:
    """Return the memory after a failed plan for CPU or memory."""
    return structs.replace(memory, resources_at=wall + _RESOURCES_PAUSE, relief=None, undoing=False)


def after_fulfilled_plan(memory: ScalingMemory, size: int) -> ScalingMemory:
    """Return the memory after a plan that reached its size.

    If that is larger than before, the pause ends.
    """
    if memory.had is None or size <= memory.had:
        return memory
    return structs.replace(memory, had=None, pause=0.0, retry_at=0.0)


def narrowed_bounds(bounds: Bounds, memory: ScalingMemory, wall: float) -> Bounds:
    """Return the bounds, whose maximum is the size reached as long as a plan for more has to wait."""
    if memory.had is None or wall >= memory.retry_at or memory.had >= bounds.maximum:
        return bounds
    limit = f"no more than {memory.had} could be had, which is tried again in {memory.retry_at - wall:.0f} s; that"
    return replace(
        bounds, maximum=max(memory.had, bounds.minimum), limit=limit, limit_is_temporary=True
    )


def fall_back(
    memory: ScalingMemory, missing: Collection[int], *, size: int, bounds: Bounds, wall: float
) -> ScalingDecision | None:
    """Fall back to the members there are, when others have been missing for `MISSING_SECONDS`.

    None: bounds forbid it.

    Args:
        memory: the auto-scaler's state.
        missing: indices of the missing members; the highest are kept if the minimum requires more members than exist.
        size: the desired number of members.
        bounds: the sizes allowed.
        wall: seconds since the epoch.
    """
    removed = sorted(missing)[: max(0, size - bounds.minimum)]
    if not removed:
        return None
    new_size = size - len(removed)
    after = after_unfulfilled_plan(memory, new_size, wall)
    who = ", ".join(map(str, removed[:10])) + (", …" if len(removed) > 10 else "")
    reason = (
        f"{len(missing)} of {size} members have been missing for {MISSING_SECONDS:.0f} s (index {who}): fall back to "
        f"{new_size}; more are asked for again in {after.pause:.0f} s"
    )
    return ScalingDecision(reason, after, remove=tuple(removed))
