"""Pods that cannot be had: the size that was had is kept, and more is asked for again after a pause that grows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory

MISSING_SECONDS = 900.0
"""How long members may be missing, while the others train, until the size is given up."""
_FIRST_PAUSE = 600.0
_LONGEST_PAUSE = 6 * 3600.0
_RESOURCES_PAUSE = 3600.0


def after_unfulfilled_plan(memory: ScalingMemory, had: int, wall: float) -> ScalingMemory:
    """Return the memory after a plan that did not get its pods, when only so many members could be had."""
    pause = min(2 * memory.pause, _LONGEST_PAUSE) if memory.pause else _FIRST_PAUSE
    moves = max(0, memory.moves - 1)  # it has told nothing about the best size
    return replace(memory, asked=had, settled=None, moves=moves, had=had, pause=pause, retry_at=wall + pause)


def after_failed_resource_plan(memory: ScalingMemory, wall: float) -> ScalingMemory:
    """Return the memory after a plan for CPU or memory that failed."""
    return replace(memory, resources_at=wall + _RESOURCES_PAUSE)


def after_fulfilled_plan(memory: ScalingMemory, size: int) -> ScalingMemory:
    """Return the memory after a plan that did: what could not be had before is forgotten if this is more."""
    if memory.had is None or size <= memory.had:
        return memory
    return replace(memory, had=None, pause=0.0, retry_at=0.0)


def narrowed_bounds(bounds: Bounds, memory: ScalingMemory, wall: float) -> Bounds:
    """Return the bounds while it is not tried again to get more pods than could be had."""
    if memory.had is None or wall >= memory.retry_at or memory.had >= bounds.maximum:
        return bounds
    limit = f"no more than {memory.had} could be had, which is tried again in {memory.retry_at - wall:.0f} s; that"
    return replace(bounds, maximum=max(memory.had, bounds.minimum), limit=limit, limit_is_temporary=True)


def fall_back(
    memory: ScalingMemory, missing: Collection[int], *, size: int, bounds: Bounds, wall: float
) -> ScalingDecision | None:
    """Decide about members that have been missing for `MISSING_SECONDS`: fall back to those who are there.

    Args:
        memory: what is remembered.
        missing: their indices; the highest stay if the bounds want more members than there are.
        size: members the job is held to.
        bounds: sizes allowed.
        wall: seconds since the epoch.
    """
    gone = sorted(missing)[: max(0, size - bounds.minimum)]
    if not gone:
        return None
    left = size - len(gone)
    after = after_unfulfilled_plan(memory, left, wall)
    who = ", ".join(map(str, gone[:10])) + (", …" if len(gone) > 10 else "")
    reason = (
        f"{len(missing)} of {size} members have been missing for {MISSING_SECONDS:.0f} s (index {who}): fall back to "
        f"{left}; more are asked for again in {after.pause:.0f} s"
    )
    return ScalingDecision(reason, after, remove=tuple(gone))
