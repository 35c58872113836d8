"""More memory for a role before its members are killed for lack of it.

After such a kill the operator doubles the memory; `lowering` has the other direction. CPU that is
fully used is not raised, except for parameter servers: more members are the answer to that.
"""

from __future__ import annotations

import math

from msgspec import structs

from elasticjob_master.core.autoscale.decision import (
    MemberUsage,
    RoleUsage,
    ScalingDecision,
    ScalingInputs,
)
from elasticjob_master.core.autoscale.scaling_memory import RolePeaks, ScalingMemory
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


def after_raised_memory(memory: ScalingMemory, now: ScalingInputs) -> ScalingMemory:
    """Return the memory after the first window that shows what came of more memory.

    A caching allocator fills all memory that it gets: a role that is near its limit again gets no
    more. A program that grows leaves some room at first.
    """
    for name, role in now.roles.items():
        peaks = memory.resources.peaks.get(name, RolePeaks())
        if not peaks.raised_memory or peaks.fills_memory or peaks.memory_has_room:
            continue
        if all(use.memory_limit == peaks.raised_memory for use in role.uses):
            full = bool(_near_limit(role))
            peaks = structs.replace(peaks, fills_memory=full, memory_has_room=not full)
            memory = memory.with_peaks(name, peaks)
    return memory


def more_memory(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Return the decision to give a role more memory, if a member is near its limit."""
    for name, role in sorted(now.roles.items()):
        near_limit = _near_limit(role)
        peaks = memory.resources.peaks.get(name, RolePeaks(since=now.wall))
        if not near_limit or peaks.fills_memory:
            continue
        worst = max(near_limit, key=lambda use: use.memory)
        wanted = rounded(worst.memory * THRESHOLDS.reserve)
        room = now.free_resources.get("memory", math.inf) / len(role.uses)
        possible = int(min(wanted, role.most_memory, role.memory + room)) // 1024**2 * 1024**2
        if possible < role.memory * (1 + THRESHOLDS.worthwhile):
            continue
        bound = ""
        if possible < wanted:
            bound = f" ({role.memory_bound} or resourceLimits.memory allow no more)"
        reason = (
            f"{worst.name} uses {mib(worst.memory)} of its {mib(worst.memory_limit or 0)} memory "
            f"and was above {THRESHOLDS.nearly_used_up:.0%} in {worst.near_limit:.0%} of the "
            f"samples: {name} gets {mib(possible)} each{bound}"
        )
        peaks = structs.replace(peaks, raised_memory=possible, memory_has_room=False)
        after = memory.with_peaks(name, peaks)
        return ScalingDecision(reason, after, resources={name: {"memory": possible}})
    return None


def _near_limit(role: RoleUsage) -> list[MemberUsage]:
    """Return the members that were near their limit for half of the window."""
    return [use for use in role.uses if use.memory_limit and 2 * use.near_limit >= 1]


def rounded(size: float) -> int:
    """Return bytes, rounded up: a multiple of 64 MiB, and at least four of them."""
    unit = THRESHOLDS.least_memory // 4
    return max(THRESHOLDS.least_memory, math.ceil(size / unit) * unit)


def tenths(cores: float) -> float:
    """Return cores, rounded up to a tenth of one."""
    return math.ceil(round(cores * 10, 6)) / 10


def mib(size: float) -> str:
    """Return bytes as text."""
    return f"{size / 1024**2:.0f} MiB"
