"""Parameter servers: when one has no CPU left, more workers add nothing; so it gets more, or the workers stay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from elasticjob_master.core.autoscale.decision import Bounds, MemberUsage, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory

SERVER_ROLES = ("ps", "server")
_HOT = 0.9
"""CPU in use, as a part of the request, from which on a server holds the workers up."""
_MOST = 2.0
"""How much more CPU one plan gives at most, as a multiple."""
_LEAST = 1.1
_HELPED = 0.1
"""What more CPU must have added to the throughput, or it is not the CPU that is short."""


def more_cpu(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds) -> ScalingDecision | None:
    """Give hot servers more CPU while the question of the size is open; None if none is hot or none can get more."""
    found = _hottest(now)
    if found is None or memory.settled is not None or memory.turned or _in_vain(memory, now):
        return None
    role, hot, everybody = found
    request = max(use.cpu_request or 0.0 for use in hot)
    factor = min(_MOST, max(_LEAST, bounds.maximum / now.size))
    room = now.free_resources.get("cpu", math.inf) / len(hot)
    cpu = math.floor(min(request * factor, request + room) * 10) / 10
    if cpu < request * _LEAST:
        return None
    worst = max(hot, key=_load)
    rate = memory.rates[now.size].mean
    facts = (
        f"{worst.name} uses {worst.cpu:.1f} of its {worst.cpu_request or 0:g} cores ({_load(worst):.0%}) with "
        f"{now.size} members of {now.role} ({rate:.1f} samples/s)"
    )
    after = replace(memory, relieved=(now.size, rate), moves=memory.moves + 1)
    if len(hot) == len(everybody):
        return ScalingDecision(f"{facts}: every {role} gets {cpu:g}", after, resources={role: {"cpu": cpu}})
    names = ", ".join(use.name for use in hot)
    return ScalingDecision(f"{facts}: {names} get {cpu:g}", after, migrate={use.name: {"cpu": cpu} for use in hot})


def narrowed_bounds(bounds: Bounds, now: ScalingInputs) -> Bounds:
    """Return the bounds while a server has no CPU left: workers beyond the present ones would wait for it."""
    found = _hottest(now)
    if found is None or bounds.maximum <= now.size:
        return bounds
    worst = max(found[1], key=_load)
    limit = f"{worst.name}, which uses {_load(worst):.0%} of its {worst.cpu_request or 0:g} cores and can get no more,"
    return replace(bounds, maximum=max(now.size, bounds.minimum), limit=limit)


def _in_vain(memory: ScalingMemory, now: ScalingInputs) -> bool:
    """Whether servers were given more CPU at this size and it has not helped."""
    if memory.relieved is None or memory.relieved[0] != now.size:
        return False
    return memory.rates[now.size].mean < memory.relieved[1] * (1 + _HELPED)


def _hottest(now: ScalingInputs) -> tuple[str, Sequence[MemberUsage], Sequence[MemberUsage]] | None:
    """Return the role, its hot members and all of them."""
    for role in now.servers:
        uses = now.roles[role].uses if role in now.roles else ()
        hot = [use for use in uses if _load(use) >= _HOT]
        if hot:
            return role, hot, uses
    return None


def _load(use: MemberUsage) -> float:
    return use.cpu / use.cpu_request if use.cpu_request else 0.0
