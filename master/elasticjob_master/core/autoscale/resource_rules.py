"""More memory from measured use, before members are killed for lack of it.

`lowering` has the other direction. After such a kill the operator doubles the memory; here it is
increased before. CPU that is fully used is not increased: more members are the answer to that,
except for parameter servers.
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

NEARLY_USED_UP = 0.9
"""Memory in use, relative to the limit, from which on a sample counts as near the limit."""
_SUSTAINED = 0.5
_MORE_MEMORY = 1.5
_UNIT = 64 * 1024**2


def with_room_seen(memory: ScalingMemory, now: ScalingInputs) -> ScalingMemory:
    """Return the memory after the window has shown what became of more memory.

    A caching allocator fills whatever it gets: when a role is near its limit again in the first
    window after it got more, it gets no more. A program that grows leaves some room at first.
    """
    for name, role in now.roles.items():
        peaks = memory.peaks.get(name)
        if peaks is None or not peaks.raised_to or peaks.filled or peaks.roomy:
            continue
        if any(use.memory_limit != peaks.raised_to for use in role.uses):
            continue
        seen = (
            structs.replace(peaks, filled=True)
            if _near_limit(role)
            else structs.replace(peaks, roomy=True)
        )
        memory = memory.with_role_peaks(name, seen)
    return memory


def more_memory(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Give a role more memory if a member was near its limit for most of the time."""
    for name, role in sorted(now.roles.items()):
        near_limit = _near_limit(role)
        peaks = memory.peaks.get(name, RolePeaks(since=now.wall))
        if not near_limit or peaks.filled:
            continue
        worst = max(near_limit, key=lambda use: use.memory)
        had = max(use.memory_limit or 0 for use in role.uses)
        wanted = rounded(worst.memory * _MORE_MEMORY)
        room = now.free_resources.get("memory", math.inf) / len(role.uses)
        possible = int(min(wanted, role.most_memory, had + room)) // 1024**2 * 1024**2
        if possible < had * 1.05:
            continue
        bound = (
            f" ({role.memory_bound} or resourceLimits.memory allow no more)"
            if possible < wanted
            else ""
        )
        reason = (
            f"{worst.name} uses {mib(worst.memory)} of its {mib(worst.memory_limit or 0)} memory and was above "
            f"{NEARLY_USED_UP:.0%} in {worst.near_limit:.0%} of the looks: {name} gets {mib(possible)} each{bound}"
        )
        raised = structs.replace(peaks, raised_to=possible, roomy=False)
        after = memory.with_role_peaks(name, raised)
        return ScalingDecision(reason, after, resources={name: {"memory": possible}})
    return None


def _near_limit(role: RoleUsage) -> list[MemberUsage]:
    return [use for use in role.uses if use.memory_limit and use.near_limit >= _SUSTAINED]


def rounded(size: float) -> int:
    """Return bytes, rounded up to a multiple of 64 MiB."""
    return math.ceil(size / _UNIT) * _UNIT


def mib(size: float) -> str:
    """Return bytes as text."""
    return f"{size / 1024**2:.0f} MiB"
