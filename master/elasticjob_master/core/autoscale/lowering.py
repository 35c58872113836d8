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

from elasticjob_master.core.autoscale.decision import RoleUsage, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.resource_rules import mib, rounded, tenths
from elasticjob_master.core.autoscale.scaling_memory import RolePeaks, ScalingMemory
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


def with_peaks(
    memory: ScalingMemory, role: str, *, cpu: float, used: int, wall: float, size: int | None = None
) -> ScalingMemory:
    """Return the memory with one more sample: the most cores and bytes that a member uses.

    A peak that grows a little is not stored, so that the state is written seldom.

    Args:
        memory: the auto-scaler's state.
        role: the role of the members.
        cpu: cores.
        used: bytes.
        wall: seconds since the epoch.
        size: the number of members of the scaled role that train; None for another role.
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
    """Return the memory with the most cores that a member of each role used on average in a window."""
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
