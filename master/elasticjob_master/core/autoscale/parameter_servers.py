"""Parameter servers: when one uses all its CPU, more workers add nothing. It gets more CPU, or no workers are added."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from elasticjob_master.core.autoscale.decision import Bounds, MemberUsage, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory

SERVER_ROLES = ("ps", "server")
_OVERLOADED = 0.9
"""CPU in use, relative to the request, from which on a server slows the workers down."""
_LARGEST_FACTOR = 2.0
"""The largest factor by which one plan increases the CPU."""
_SMALLEST_FACTOR = 1.1
_LEAST_GAIN = 0.1
"""The relative throughput that more CPU must have added; otherwise CPU was not the bottleneck."""


def more_cpu(memory: ScalingMemory, now: ScalingInputs, bounds: Bounds) -> ScalingDecision | None:
    """Give overloaded servers more CPU while the search is on; None if there are none, or they cannot get more."""
    found = _overloaded(now)
    if found is None or memory.settled is not None or memory.turned or _more_cpu_was_useless(memory, now):
        return None
    role, overloaded, all_servers = found
    request = max(use.cpu_request or 0.0 for use in overloaded)
    factor = min(_LARGEST_FACTOR, max(_SMALLEST_FACTOR, bounds.maximum / now.size))
    room = now.free_resources.get("cpu", math.inf) / len(overloaded)
    cpu = math.floor(min(request * factor, request + room) * 10) / 10
    if cpu < request * _SMALLEST_FACTOR:
        return None
    worst = max(overloaded, key=_load)
    rate = memory.rates[now.size]
    facts = (
        f"{worst.name} uses {worst.cpu:.1f} of its {worst.cpu_request or 0:g} cores ({_load(worst):.0%}) with "
        f"{now.size} members of {now.role} ({rate:.1f} samples/s)"
    )
    after = structs.replace(memory, relieved=(now.size, rate), moves=memory.moves + 1)
    if len(overloaded) == len(all_servers):
        return ScalingDecision(f"{facts}: every {role} gets {cpu:g}", after, resources={role: {"cpu": cpu}})
    names = ", ".join(use.name for use in overloaded)
    migrate = {use.name: {"cpu": cpu} for use in overloaded}
    return ScalingDecision(f"{facts}: {names} get {cpu:g}", after, migrate=migrate)


def narrowed_bounds(bounds: Bounds, now: ScalingInputs) -> Bounds:
    """Return the bounds; while a server is overloaded the maximum is the present size, as more workers would wait."""
    found = _overloaded(now)
    if found is None or bounds.maximum <= now.size:
        return bounds
    worst = max(found[1], key=_load)
    limit = f"{worst.name}, which uses {_load(worst):.0%} of its {worst.cpu_request or 0:g} cores and can get no more,"
    return replace(bounds, maximum=max(now.size, bounds.minimum), limit=limit)


def _more_cpu_was_useless(memory: ScalingMemory, now: ScalingInputs) -> bool:
    """Return whether servers got more CPU at this size and the throughput has not grown."""
    if memory.relieved is None or memory.relieved[0] != now.size:
        return False
    return memory.rates[now.size] < memory.relieved[1] * (1 + _LEAST_GAIN)


def _overloaded(now: ScalingInputs) -> tuple[str, Sequence[MemberUsage], Sequence[MemberUsage]] | None:
    """Return the first role with overloaded servers, these servers, and all of the role; None: there is none."""
    for role in now.servers:
        uses = now.roles[role].uses if role in now.roles else ()
        overloaded = [use for use in uses if _load(use) >= _OVERLOADED]
        if overloaded:
            return role, overloaded, uses
    return None


def _load(use: MemberUsage) -> float:
    return use.cpu / use.cpu_request if use.cpu_request else 0.0
