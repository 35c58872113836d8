"""Lower unused CPU and memory, rarely and slowly, and give it back if it is needed after all.

The peaks of a role are kept for the life of the job, because a training has phases (a checkpoint,
an evaluation) that need more than the hours between them.
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
from elasticjob_master.core.autoscale.resource_rules import mib, rounded
from elasticjob_master.core.autoscale.scaling_memory import RolePeaks, ScalingMemory
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


def with_peaks(
    memory: ScalingMemory, role: str, *, cpu: float, used: int, wall: float
) -> ScalingMemory:
    """Return the memory with one more sample: the most cores and bytes that a member uses."""
    known = memory.resources.peaks.get(role)
    if known is None:
        return memory.with_peaks(role, RolePeaks(cpu=cpu, memory=used, since=wall))
    growth = THRESHOLDS.peak_growth
    if cpu <= known.cpu * growth and used <= known.memory * growth:
        return memory
    peaks = structs.replace(known, cpu=max(cpu, known.cpu), memory=max(used, known.memory))
    return memory.with_peaks(role, peaks)


def with_window_cpu(memory: ScalingMemory, roles: Mapping[str, RoleUsage]) -> ScalingMemory:
    """Return the memory with the most cores that a member of each role used on average in a window."""
    for role, usage in roles.items():
        known = memory.resources.peaks.get(role)
        cpu = max((use.window_cpu for use in usage.uses), default=0.0)
        if known is not None and cpu > known.window_cpu * THRESHOLDS.peak_growth:
            memory = memory.with_peaks(role, structs.replace(known, window_cpu=cpu))
    return memory


def lower_requests(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Return the decision to lower requests that are far above the peak use.

    The size must have settled, and the use must be known for long. Lowering must pay even if the
    cluster has to replace every member for it.
    """
    rates = memory.rates
    if memory.search.settled_size != now.size:
        return None
    if rates.by_size[now.size].weight < THRESHOLDS.lowering_windows:
        return None
    for name, role in sorted(now.roles.items()):
        peaks = memory.resources.peaks.get(name)
        if peaks is None or not _may_lower(peaks, now.wall) or not role.uses:
            continue
        if len(role.uses) * rates.rescale_seconds > THRESHOLDS.resources_cost * now.horizon:
            continue
        cpu_before = max(use.cpu_request or 0 for use in role.uses)
        memory_before = max(use.memory_limit or 0 for use in role.uses)
        texts = []
        wanted: dict[str, float] = {}
        if (cpu := _lower_cpu(role, peaks)) is not None:
            wanted["cpu"] = cpu
            texts.append(f"at most {peaks.cpu:.2f} of {cpu_before:g} cores are used: {cpu:g} each")
        if (limit := _lower_memory(role, peaks)) is not None:
            wanted["memory"] = limit
            texts.append(
                f"at most {mib(peaks.memory)} of {mib(memory_before)} memory is used: "
                f"{mib(limit)} each"
            )
        if not wanted:
            continue
        before = peaks.before_lowering or (cpu_before, memory_before)
        lowered = structs.replace(peaks, before_lowering=before, lowered_at=now.wall)
        after = memory.with_peaks(name, lowered)
        return ScalingDecision(f"{name}: {'; '.join(texts)}", after, resources={name: wanted})
    return None


def give_back(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Return the decision to undo a lowering, if a member needs more or was killed for it.

    The role is not lowered again.
    """
    for name, role in sorted(now.roles.items()):
        peaks = memory.resources.peaks.get(name)
        if peaks is None or peaks.before_lowering is None:
            continue
        needy = [use for use in role.uses if _needs_more(use)]
        if needy:
            why = f"{needy[0].name} uses nearly all that is left"
        elif role.own_memory:
            why = "a member had too little memory"
        else:
            continue
        room = {key: free / max(1, len(role.uses)) for key, free in now.free_resources.items()}
        present_cpu = min((use.cpu_request or 0 for use in role.uses), default=0)
        present_memory = min((use.memory_limit or 0 for use in role.uses), default=0)
        cpu_before, memory_before = peaks.before_lowering
        cpu = min(cpu_before, present_cpu + room.get("cpu", math.inf))
        limit = int(min(memory_before, present_memory + room.get("memory", math.inf)))
        wanted = {key: value for key, value in {"cpu": cpu, "memory": limit}.items() if value}
        restored = structs.replace(peaks, before_lowering=None, keeps_resources=True)
        return ScalingDecision(
            f"{name} was lowered, and {why}: back to {cpu:g} cores and {mib(limit)} each",
            memory.with_peaks(name, restored),
            resources={name: wanted},
        )
    return None


def _may_lower(peaks: RolePeaks, wall: float) -> bool:
    observed = wall - max(peaks.since, peaks.lowered_at)
    return not peaks.keeps_resources and observed >= THRESHOLDS.observed_seconds


def _lower_cpu(role: RoleUsage, peaks: RolePeaks) -> float | None:
    requested = min((use.cpu_request or 0.0 for use in role.uses), default=0.0)
    needed = math.ceil(peaks.cpu * THRESHOLDS.peak_cpu_reserve * 10) / 10
    needed = max(THRESHOLDS.least_cpu, needed)
    if peaks.cpu <= 0 or needed > requested * THRESHOLDS.unused_part:
        return None
    return max(needed, requested * THRESHOLDS.lowered_part)


def _lower_memory(role: RoleUsage, peaks: RolePeaks) -> int | None:
    if role.own_memory:
        return None  # some members have more because they needed it
    limit = max(use.memory_limit or 0 for use in role.uses)
    needed = rounded(peaks.memory * THRESHOLDS.peak_memory_reserve)
    needed = max(THRESHOLDS.least_memory, needed)
    if peaks.memory <= 0 or needed > limit * THRESHOLDS.unused_part:
        return None
    return max(needed, int(limit * THRESHOLDS.lowered_part))


def _needs_more(use: MemberUsage) -> bool:
    cpu = use.cpu_request or math.inf
    memory = use.memory_limit or math.inf
    part = THRESHOLDS.nearly_used_up
    return use.cpu_peak >= part * cpu or use.memory >= part * memory
