"""Parameter servers: when one uses all its CPU, it gets more, and keeps it only if the workers get faster.

A server that is busy is not always the bottleneck: one that polls uses all it has. So it is measured what came of more
CPU: if it did not help, it is taken back, and the role never gets more again. The number of workers is not bounded by a
busy server, as their throughput is measured anyway.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import structs

from elasticjob_master.core.autoscale.decision import MemberUsage, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.scaling_memory import Relief, ScalingMemory, begin_search

SERVER_ROLES = ("ps", "server")
_OVERLOADED = 0.9
"""CPU in use, relative to the request, from which on a server may slow the workers down."""
_MORE_CPU, _LEAST_MORE_CPU = 2.0, 1.1
"""The factor by which one plan increases the CPU, and the least one that resourceLimits must allow."""
_LEAST_GAIN = 0.1
"""The relative throughput that more CPU must have added; otherwise CPU was not the bottleneck."""
_JUDGED_WINDOWS = 2.0


def more_cpu(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Give overloaded servers more CPU while the search is on; None if there are none, or they cannot get more."""
    found = _overloaded(memory, now)
    if found is None or memory.settled is not None or memory.turned:
        return None
    role, overloaded, all_servers = found
    request = max(use.cpu_request or 0.0 for use in overloaded)
    room = now.free_resources.get("cpu", math.inf) / len(overloaded)
    cpu = math.floor(min(request * _MORE_CPU, request + room) * 10) / 10
    if cpu < request * _LEAST_MORE_CPU:
        return None
    worst = max(overloaded, key=_load)
    rate = memory.rates[now.size]
    facts = (
        f"{worst.name} uses {worst.cpu:.1f} of its {worst.cpu_request or 0:g} cores ({_load(worst):.0%}) with "
        f"{now.size} members of {now.role} ({rate:.1f} samples/s)"
    )
    relief = Relief(role=role, size=now.size, rate=rate, before=request)
    after = structs.replace(memory, relief=relief, moves=memory.moves + 1)
    return _changed_cpu(role, overloaded, all_servers, cpu, facts, after)


def judged(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | ScalingMemory:
    """Return the memory after what came of more CPU was judged, or the decision to measure on or to take it back."""
    relief = memory.relief
    if relief is None:
        return memory
    if not now.window_is_over:
        return ScalingDecision("more CPU for servers is not judged yet", memory)
    if relief.size != now.size:
        return structs.replace(memory, relief=None)  # somebody else has changed the size: it cannot be compared
    measured = memory.rate(now.size)
    facts = (
        f"{now.size} members: {relief.rate:.1f} samples/s before {relief.role} got more CPU, {measured.mean:.1f} since"
    )
    if measured.weight < _JUDGED_WINDOWS:
        return ScalingDecision(f"{facts}; measuring {now.size} again", memory)
    if measured.mean >= relief.rate * (1 + _LEAST_GAIN):
        fresh = memory.with_rates({now.size: measured})  # the other sizes had the servers as they were
        return begin_search(structs.replace(fresh, relief=None), now.size, heading=1)
    after = structs.replace(memory, relief=None, undoing=True, useless=(*memory.useless, relief.role))
    uses = now.roles[relief.role].uses if relief.role in now.roles else ()
    raised = [use for use in uses if (use.cpu_request or 0.0) > relief.before]
    if not raised:
        return after
    return _changed_cpu(relief.role, raised, uses, relief.before, f"{facts}: it did not help", after)


def _changed_cpu(
    role: str,
    changed: Sequence[MemberUsage],
    all_servers: Sequence[MemberUsage],
    cpu: float,
    facts: str,
    after: ScalingMemory,
) -> ScalingDecision:
    """Return the decision that some of a role's servers get these cores."""
    if len(changed) == len(all_servers):
        return ScalingDecision(f"{facts}: every {role} gets {cpu:g}", after, resources={role: {"cpu": cpu}})
    names = ", ".join(use.name for use in changed)
    return ScalingDecision(f"{facts}: {names} get {cpu:g}", after, migrate={use.name: {"cpu": cpu} for use in changed})


def _overloaded(
    memory: ScalingMemory, now: ScalingInputs
) -> tuple[str, Sequence[MemberUsage], Sequence[MemberUsage]] | None:
    """Return the first role with overloaded servers, these servers, and all of the role; None: there is none."""
    for role in now.servers:
        uses = now.roles[role].uses if role in now.roles else ()
        overloaded = [use for use in uses if _load(use) >= _OVERLOADED]
        if overloaded and role not in memory.useless:
            return role, overloaded, uses
    return None


def _load(use: MemberUsage) -> float:
    return use.cpu / use.cpu_request if use.cpu_request else 0.0
