"""More memory for a role before its members are killed for lack of it; less of what is not used.

After such a kill the operator doubles the memory. CPU that is fully used is not raised, except for
parameter servers: more members are the answer to that.
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


def with_peaks(
    memory: ScalingMemory, role: str, *, cpu: float, used: int, wall: float, size: int | None = None
) -> ScalingMemory:
    """Return the memory with one more sample: the most cores and bytes that a member uses.

    A peak that grows a little is not stored, so that the state is written seldom. `size` is the
    number of members of the scaled role that train; None for another role.
    """
    known = memory.resources.peaks.get(role, RolePeaks(since=wall))
    growth = 1 + THRESHOLDS.noticeable
    peaks = known
    if used > known.memory * growth:
        peaks = structs.replace(peaks, memory=used, grown_at=wall)
    if cpu > known.cpu * growth:
        peaks = structs.replace(peaks, cpu=cpu)
    if size is not None and used > known.memory_by_size.get(size, 0) * growth:
        latest = list({**known.memory_by_size, size: used}.items())[-THRESHOLDS.stored :]
        peaks = structs.replace(peaks, memory_by_size=dict(latest))
    if peaks is known and role in memory.resources.peaks:
        return memory
    return memory.with_peaks(role, peaks)


def with_window_cpu(memory: ScalingMemory, roles: Mapping[str, RoleUsage]) -> ScalingMemory:
    """Return the memory with the most cores that a member of each role used in a window."""
    for role, usage in roles.items():
        known = memory.resources.peaks.get(role)
        cpu = max((use.cpu for use in usage.uses), default=0.0)
        if known is not None and cpu > known.window_cpu * (1 + THRESHOLDS.noticeable):
            memory = memory.with_peaks(role, structs.replace(known, window_cpu=cpu))
    return memory


def lower_requests(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Return the decision to halve requests of which less than half was ever used.

    The size must have settled, and the use must be known for long. Lowering must pay even if the
    cluster has to replace every member for it.
    """
    if memory.search.settled_size != now.size:
        return None
    for name, role in sorted(now.roles.items()):
        peaks = memory.resources.peaks.get(name, RolePeaks(keeps_resources=True))
        cost = len(role.uses) * memory.rates.rescale_seconds
        waited = now.wall - max(peaks.since, peaks.lowered_at)
        pays = cost <= THRESHOLDS.minor * now.horizon
        if peaks.keeps_resources or not role.uses or not pays or waited < THRESHOLDS.hour:
            continue
        before = peaks.before_lowering or (role.cpu, role.memory)
        period = max(THRESHOLDS.hour, peaks.grown_at - peaks.since)
        peaks = structs.replace(peaks, before_lowering=before, lowered_at=now.wall)
        cpu = min(use.cpu_request or 0.0 for use in role.uses) / 2
        if 0 < tenths(peaks.cpu * THRESHOLDS.reserve) <= cpu:
            used = f"at most {peaks.cpu:.2f} of {role.cpu:g} cores are used"
            after = memory.with_peaks(name, peaks)
            reason = f"{name}: {used}: {cpu:g} each"
            return ScalingDecision(reason, after, resources={name: {"cpu": cpu}})
        fits = peaks.memory > 0 and rounded(2 * peaks.memory) <= role.memory / 2
        # Single members have more because they needed it.
        may_lower = fits and not role.own_memory and waited >= THRESHOLDS.lasting * period
        if may_lower and (lowered := _lowered_memory(memory, name, role, peaks)):
            return lowered
    return None


def _lowered_memory(
    memory: ScalingMemory, name: str, role: RoleUsage, peaks: RolePeaks
) -> ScalingDecision | None:
    """Return the decision to halve the memory of one member, or of all after one has tried it."""
    tried = peaks.tried_memory
    if tried and all(use.memory_limit != tried for use in role.uses):
        return None  # the member that tried it needed more
    limit = tried or role.memory // 2
    facts = f"{name}: at most {mib(peaks.memory)} of {mib(role.memory)} memory is used"
    if len(role.uses) > 1 and not tried:
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
    uses = now.roles.get(now.role, RoleUsage()).uses
    limit = min((use.memory_limit for use in uses if use.memory_limit), default=0)
    known = sorted(memory.resources.peaks.get(now.role, RolePeaks()).memory_by_size.items())
    if not limit or not known:
        return 1
    smallest, used = known[0]
    divided = float(used * smallest)
    if len(known) > 1:
        larger, of_larger = known[1]
        slope = (used - of_larger) / (1 / smallest - 1 / larger)
        divided = min(divided, slope)
    room = THRESHOLDS.nearly_used_up * limit - used
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
        peaks = memory.resources.peaks.get(name, RolePeaks())
        needy = next((use.name for use in role.uses if use.is_nearly_used_up), "")
        if peaks.before_lowering is None or not (needy or role.own_memory):
            continue
        why = f"{needy} uses nearly all that is left" if needy else "a member had too little memory"
        room = {key: free / max(1, len(role.uses)) for key, free in now.free_resources.items()}
        least_cpu = min((use.cpu_request or 0 for use in role.uses), default=0)
        least_memory = min((use.memory_limit or 0 for use in role.uses), default=0)
        cpu_before, memory_before = peaks.before_lowering
        cpu = min(cpu_before, least_cpu + room.get("cpu", math.inf))
        limit = int(min(memory_before, least_memory + room.get("memory", math.inf)))
        wanted = {key: value for key, value in {"cpu": cpu, "memory": limit}.items() if value}
        restored = structs.replace(peaks, before_lowering=None, keeps_resources=True)
        return ScalingDecision(
            f"{name} was lowered, and {why}: back to {cpu:g} cores and {mib(limit)} each",
            memory.with_peaks(name, restored),
            resources={name: wanted},
        )
    return None
