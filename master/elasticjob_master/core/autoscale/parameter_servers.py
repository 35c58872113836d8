"""Parameter servers.

When they use all their CPU, they get more, and keep it only if the workers get faster. A server
that is busy is not always the bottleneck: one that polls uses all it has. So it is measured what
came of more CPU: if it did not help, it is taken back, and the role never gets more again. Where
CPU cannot be had, or did not help, more servers are tried in the same way, if the framework can
distribute its variables over them. The number of workers is not bounded by a busy server, as their
throughput is measured anyway.
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
_MORE_CPU = 2.0
_LEAST_MORE_CPU = 1.1
"""The factor by which one plan increases the CPU, and the least one that resourceLimits must allow.
"""
_MORE_SERVERS = 2
_LEAST_GAIN = 0.1
"""The relative throughput that it must have added; otherwise it was not the bottleneck."""
_JUDGED_WINDOWS = 2.0


def more_cpu(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Give overloaded servers more CPU while the search is on.

    None if there are none, or they cannot get more.
    """
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


def more_servers(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Double the number of servers, all of which are overloaded, while the search is on.

    None: there is no such role, or it may have no more. Ask `more_cpu` before: it costs no new
    world.
    """
    if memory.settled is not None or memory.turned:
        return None
    for role in now.servers:
        uses = now.roles[role].uses if role in now.roles else ()
        count = now.server_counts.get(role, 0)
        target = min(_MORE_SERVERS * count, now.most_servers.get(role, 0))
        if (
            role in memory.enough
            or target <= count
            or not uses
            or min(map(_load, uses)) < _OVERLOADED
        ):
            continue
        worst = max(uses, key=_load)
        rate = memory.rates[now.size]
        why = "more CPU did not help" if role in memory.useless else "no more CPU is to be had"
        facts = (
            f"every {role} uses at least {min(map(_load, uses)):.0%} of its CPU with {now.size} members of {now.role} "
            f"({rate:.1f} samples/s), and {why}"
        )
        relief = Relief(
            role=role, size=now.size, rate=rate, before=worst.cpu_request or 0.0, servers=count
        )
        after = structs.replace(memory, relief=relief, moves=memory.moves + 1)
        return ScalingDecision(
            f"{facts}: {target} of them instead of {count}", after, servers={role: target}
        )
    return None


def judged(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | ScalingMemory:
    """Return the memory after what came of a relief was judged, or the decision to measure on or to take it back."""
    relief = memory.relief
    if relief is None:
        return memory
    if not now.window_is_over:
        return ScalingDecision("what servers have got is not judged yet", memory)
    if relief.size != now.size:
        return structs.replace(
            memory, relief=None
        )  # somebody else has changed the size: it cannot be compared
    measured = memory.rate(now.size)
    got = "more CPU" if not relief.servers else "more members"
    facts = f"{now.size} members: {relief.rate:.1f} samples/s before {relief.role} got {got}, {measured.mean:.1f} since"
    if measured.weight < _JUDGED_WINDOWS:
        return ScalingDecision(f"{facts}; measuring {now.size} again", memory)
    if measured.mean >= relief.rate * (1 + _LEAST_GAIN):
        fresh = memory.with_rates(
            {now.size: measured}
        )  # the other sizes had the servers as they were
        return begin_search(structs.replace(fresh, relief=None), now.size, heading=1)
    if relief.servers:
        after = structs.replace(
            memory, relief=None, undoing=True, enough=(*memory.enough, relief.role)
        )
        if now.server_counts.get(relief.role, 0) <= relief.servers:
            return after
        reason = f"{facts}: it did not help; back to {relief.servers}"
        return ScalingDecision(reason, after, servers={relief.role: relief.servers})
    after = structs.replace(
        memory, relief=None, undoing=True, useless=(*memory.useless, relief.role)
    )
    uses = now.roles[relief.role].uses if relief.role in now.roles else ()
    raised = [use for use in uses if (use.cpu_request or 0.0) > relief.before]
    if not raised:
        return after
    return _changed_cpu(
        relief.role, raised, uses, relief.before, f"{facts}: it did not help", after
    )


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
        return ScalingDecision(
            f"{facts}: every {role} gets {cpu:g}", after, resources={role: {"cpu": cpu}}
        )
    names = ", ".join(use.name for use in changed)
    return ScalingDecision(
        f"{facts}: {names} get {cpu:g}", after, migrate={use.name: {"cpu": cpu} for use in changed}
    )


def _overloaded(
    memory: ScalingMemory, now: ScalingInputs
) -> tuple[str, Sequence[MemberUsage], Sequence[MemberUsage]] | None:
    """Return the first role with overloaded servers, these servers, and all of the role.

    None: there is none.
    """
    for role in now.servers:
        uses = now.roles[role].uses if role in now.roles else ()
        overloaded = [use for use in uses if _load(use) >= _OVERLOADED]
        if overloaded and role not in memory.useless:
            return role, overloaded, uses
    return None


def _load(use: MemberUsage) -> float:
    return use.cpu / use.cpu_request if use.cpu_request else 0.0
