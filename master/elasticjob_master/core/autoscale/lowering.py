"""Lower CPU and memory if they are unused, rarely and slowly, and give back what was taken if it is needed after all.

What a role has once needed is never taken away: its peaks are kept for the life of the job, because
a training has phases (a checkpoint, an evaluation) that need more than the hours between them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import structs

from elasticjob_master.core.autoscale.decision import (
    MemberUsage,
    RoleUsage,
    ScalingDecision,
    ScalingInputs,
)
from elasticjob_master.core.autoscale.resource_rules import NEARLY_USED_UP, mib, rounded
from elasticjob_master.core.autoscale.scaling_memory import RolePeaks, ScalingMemory

_OBSERVED_SECONDS = 3600.0
"""How long a role's use must be known before it is lowered, and how long one lowering comes after
another.
"""
_SLOWLY = 0.5
"""One plan lowers to no less than this part."""
_ROOMY = 0.5
"""A request is lowered when the peak use with its reserve is at most this part of it."""
_MEMORY_RESERVE = 2.0
_CPU_RESERVE = 1.5
_LEAST_MEMORY = 256 * 1024**2
_LEAST_CPU = 0.1
_WORTH = 0.05
_SETTLED_WINDOWS = 3.0
_GROWTH = 1.02
"""By which factor a peak must be exceeded to be stored again."""


def with_peaks(
    memory: ScalingMemory, role: str, *, cpu: float, used: int, wall: float
) -> ScalingMemory:
    """Return the memory with the use of a role's members at one moment.

    Cores and bytes of those that use most.
    """
    known = memory.peaks.get(role)
    if known is None:
        peaks = RolePeaks(cpu=cpu, memory=used, since=wall)
    elif cpu > known.cpu * _GROWTH or used > known.memory * _GROWTH:
        peaks = structs.replace(known, cpu=max(cpu, known.cpu), memory=max(used, known.memory))
    else:
        return memory
    return memory.with_role_peaks(role, peaks)


def with_steady_use(memory: ScalingMemory, roles: Mapping[str, RoleUsage]) -> ScalingMemory:
    """Return the memory with the mean cores in use in a window, by those members that use most."""
    for role, usage in roles.items():
        known = memory.peaks.get(role)
        cpu = max((use.steady_cpu for use in usage.uses), default=0.0)
        if known is not None and cpu > known.steady * _GROWTH:
            memory = memory.with_role_peaks(role, structs.replace(known, steady=cpu))
    return memory


def lower_requests(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Lower requests that are far above the peak use, once the size has settled and the use is known for long.

    It must pay even if the cluster has to replace every member for it.
    """
    if memory.settled != now.size or memory.rate(now.size).weight < _SETTLED_WINDOWS:
        return None
    for name, role in sorted(now.roles.items()):
        peaks = memory.peaks.get(name)
        if peaks is None or not _may_lower(peaks, now.wall):
            continue
        if not role.uses or len(role.uses) * memory.cost > _WORTH * now.horizon:
            continue
        cpu = _lower_cpu(role, peaks)
        limit = _lower_memory(role, peaks)
        if cpu is None and limit is None:
            continue
        had_cpu = max(use.cpu_request or 0 for use in role.uses)
        had_memory = max(use.memory_limit or 0 for use in role.uses)
        texts = []
        wanted = {}
        if cpu is not None:
            wanted["cpu"] = cpu
            texts.append(f"at most {peaks.cpu:.2f} of {had_cpu:g} cores are used: {cpu:g} each")
        if limit is not None:
            wanted["memory"] = limit
            texts.append(
                f"at most {mib(peaks.memory)} of {mib(had_memory)} memory is used: {mib(limit)} each"
            )
        before = peaks.before or (had_cpu, had_memory)
        after = memory.with_role_peaks(
            name, structs.replace(peaks, before=before, lowered_at=now.wall)
        )
        return ScalingDecision(f"{name}: {'; '.join(texts)}", after, resources={name: wanted})
    return None


def give_back(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Give a role what it had before it was lowered, if a member needs nearly all that is left, or was killed for it.

    The role is not lowered again.
    """
    for name, role in sorted(now.roles.items()):
        peaks = memory.peaks.get(name)
        if peaks is None or peaks.before is None:
            continue
        needy = [use for use in role.uses if _needs_more(use)]
        if not needy and not role.own_memory:
            continue
        room = {key: free / max(1, len(role.uses)) for key, free in now.free_resources.items()}
        had_cpu = min((use.cpu_request or 0 for use in role.uses), default=0)
        had_memory = min((use.memory_limit or 0 for use in role.uses), default=0)
        cpu, limit = peaks.before
        wanted = {
            "cpu": min(cpu, had_cpu + room.get("cpu", math.inf)),
            "memory": int(min(limit, had_memory + room.get("memory", math.inf))),
        }
        why = (
            f"{needy[0].name} uses nearly all that is left"
            if needy
            else "a member had too little memory"
        )
        after = memory.with_role_peaks(name, structs.replace(peaks, before=None, kept=True))
        reason = f"{name} was lowered, and {why}: back to {wanted['cpu']:g} cores and {mib(wanted['memory'])} each"
        return ScalingDecision(
            reason, after, resources={name: {key: value for key, value in wanted.items() if value}}
        )
    return None


def _may_lower(peaks: RolePeaks, wall: float) -> bool:
    return not peaks.kept and wall - max(peaks.since, peaks.lowered_at) >= _OBSERVED_SECONDS


def _lower_cpu(role: RoleUsage, peaks: RolePeaks) -> float | None:
    requested = min((use.cpu_request or 0.0 for use in role.uses), default=0.0)
    needed = max(_LEAST_CPU, math.ceil(peaks.cpu * _CPU_RESERVE * 10) / 10)
    return (
        max(needed, requested * _SLOWLY) if peaks.cpu > 0 and needed <= requested * _ROOMY else None
    )


def _lower_memory(role: RoleUsage, peaks: RolePeaks) -> int | None:
    if role.own_memory:
        return None  # some have more, because they needed it
    limit = max(use.memory_limit or 0 for use in role.uses)
    needed = max(_LEAST_MEMORY, rounded(peaks.memory * _MEMORY_RESERVE))
    return (
        max(needed, int(limit * _SLOWLY)) if peaks.memory > 0 and needed <= limit * _ROOMY else None
    )


def _needs_more(use: MemberUsage) -> bool:
    cpu = bool(use.cpu_request) and use.cpu_peak >= NEARLY_USED_UP * (use.cpu_request or 0.0)
    return cpu or (
        bool(use.memory_limit) and use.memory >= NEARLY_USED_UP * (use.memory_limit or 0)
    )
