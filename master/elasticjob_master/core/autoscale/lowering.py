"""Lower unused CPU and memory, rarely and slowly, and give it back if it is needed after all.

The peaks of a role are kept for the life of the job, because a training has phases (a checkpoint,
an evaluation) that need more than the hours between them. Too little CPU slows a member down, but
too little memory kills it. So memory is lowered only after several of the longest pauses between
two phases that were seen, and one member tries it for as long before the others get it.
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
    memory: ScalingMemory, role: str, *, cpu: float, used: int, wall: float, size: int | None = None
) -> ScalingMemory:
    """Return the memory with one more sample: the most cores and bytes that a member uses.

    Args:
        memory: the auto-scaler's state.
        role: the role of the members.
        cpu: cores.
        used: bytes.
        wall: seconds since the epoch.
        size: the number of members of the scaled role that train; None for another role.
    """
    known = memory.resources.peaks.get(role, RolePeaks(since=wall))
    growth = THRESHOLDS.peak_growth
    peaks = known
    if used > known.memory * growth:
        peaks = structs.replace(peaks, memory=used, grown_at=wall)
    if cpu > known.cpu * growth:
        peaks = structs.replace(peaks, cpu=cpu)
    if size is not None and used > known.memory_by_size.get(size, 0) * growth:
        by_size = {**known.memory_by_size, size: used}
        for oldest in list(by_size)[: -THRESHOLDS.stored_sizes]:
            del by_size[oldest]
        peaks = structs.replace(peaks, memory_by_size=by_size)
    if peaks is known and role in memory.resources.peaks:
        return memory
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
        if peaks is None or peaks.keeps_resources or not role.uses:
            continue
        if len(role.uses) * rates.rescale_seconds > THRESHOLDS.resources_cost * now.horizon:
            continue
        waited = now.wall - max(peaks.since, peaks.lowered_at)
        if waited < THRESHOLDS.observed_seconds:
            continue
        before = peaks.before_lowering or (_most_cpu(role), _most_memory(role))
        peaks = structs.replace(peaks, before_lowering=before, lowered_at=now.wall)
        cpu = _lower_cpu(role, peaks)
        if cpu is not None:
            reason = (
                f"{name}: at most {peaks.cpu:.2f} of {_most_cpu(role):g} cores are used: {cpu:g} "
                "each"
            )
            after = memory.with_peaks(name, peaks)
            return ScalingDecision(reason, after, resources={name: {"cpu": cpu}})
        period = max(0.0, peaks.grown_at - peaks.since)
        least = max(THRESHOLDS.memory_seconds, THRESHOLDS.memory_periods * period)
        if waited >= least and (lowered := _lowered_memory(memory, name, role, peaks)):
            return lowered
    return None


def _lowered_memory(
    memory: ScalingMemory, name: str, role: RoleUsage, peaks: RolePeaks
) -> ScalingDecision | None:
    """Return the decision to lower the memory of one member, or of all after one has tried it."""
    limit = _lower_memory(role, peaks)
    if limit is None:
        return None
    facts = f"{name}: at most {mib(peaks.memory)} of {mib(_most_memory(role))} memory is used"
    limit = max(limit, peaks.tried_memory)
    if len(role.uses) > 1 and not peaks.tried_memory:
        first = role.uses[-1].name
        after = memory.with_peaks(name, structs.replace(peaks, tried_memory=limit))
        reason = f"{facts}: {first} tries {mib(limit)}"
        return ScalingDecision(reason, after, migrate={first: {"memory": limit}})
    after = memory.with_peaks(name, structs.replace(peaks, tried_memory=0))
    reason = f"{facts}: {mib(limit)} each"
    return ScalingDecision(reason, after, resources={name: {"memory": limit}})


def least_size(memory: ScalingMemory, now: ScalingInputs) -> int:
    """Return the smallest size at which no member is expected to run out of memory.

    A state that is divided among the members takes more memory of each when there are fewer. How
    much of the memory is divided shows when two sizes are known; before that, all of it may be.
    """
    role = now.roles.get(now.role, RoleUsage())
    peaks = memory.resources.peaks.get(now.role, RolePeaks())
    limit = min((use.memory_limit for use in role.uses if use.memory_limit), default=0)
    known = sorted(peaks.memory_by_size.items())
    if not limit or not known:
        return 1
    smallest, used = known[0]
    divided = float(used * smallest)
    if len(known) > 1:
        larger, of_larger = known[1]
        slope = (used - of_larger) / (1 / smallest - 1 / larger)
        divided = min(divided, max(0.0, slope))
    room = THRESHOLDS.memory_when_fewer * limit - used
    if divided <= 0:
        return 1
    if room <= 0:
        return smallest
    # used + divided / size - divided / smallest fits
    return math.ceil(1 / (1 / smallest + room / divided))


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


def _most_cpu(role: RoleUsage) -> float:
    return max((use.cpu_request or 0.0 for use in role.uses), default=0.0)


def _most_memory(role: RoleUsage) -> int:
    return max((use.memory_limit or 0 for use in role.uses), default=0)


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
    if peaks.tried_memory and all(use.memory_limit != peaks.tried_memory for use in role.uses):
        return None  # the member that tried it needed more
    limit = _most_memory(role)
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
