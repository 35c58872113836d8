"""CPU and memory from measured use: more memory before members are killed for lack of it, lower requests if unused.

After such a kill the operator doubles the memory; here it is increased before. CPU that is fully used is not increased:
more members are the answer to that, except for parameter servers.
"""

from __future__ import annotations

import math

from elasticjob_master.core.autoscale.decision import RoleUsage, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory

NEARLY_USED_UP = 0.9
"""Memory in use, relative to the limit, from which on a sample counts as near the limit."""
_SUSTAINED = 0.5
_MORE_MEMORY = 1.5
_UNIT = 64 * 1024**2
_ROOMY = 0.5
"""A request is lowered when the peak use with its reserve is at most this part of it."""
_MEMORY_RESERVE = 2.0
_CPU_RESERVE = 1.5
_LEAST_MEMORY = 256 * 1024**2
_LEAST_CPU = 0.1
_WORTH = 0.05
_SETTLED_WINDOWS = 3.0


def more_memory(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Give a role more memory if a member was near its limit for most of the time."""
    for name, role in sorted(now.roles.items()):
        near_limit = [use for use in role.uses if use.memory_limit and use.near_limit >= _SUSTAINED]
        if not near_limit:
            continue
        worst = max(near_limit, key=lambda use: use.memory)
        had = max(use.memory_limit or 0 for use in role.uses)
        wanted = _rounded(worst.memory * _MORE_MEMORY)
        room = now.free_resources.get("memory", math.inf) / len(role.uses)
        possible = int(min(wanted, role.most_memory, had + room)) // 1024**2 * 1024**2
        if possible < had * 1.05:
            continue
        bound = f" ({role.memory_bound} or resourceLimits.memory allow no more)" if possible < wanted else ""
        reason = (
            f"{worst.name} uses {_mib(worst.memory)} of its {_mib(worst.memory_limit or 0)} memory and was above "
            f"{NEARLY_USED_UP:.0%} in {worst.near_limit:.0%} of the looks: {name} gets {_mib(possible)} each{bound}"
        )
        return ScalingDecision(reason, memory, resources={name: {"memory": possible}})
    return None


def lower_requests(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Lower requests that are far above the measured use, once the size has settled.

    It must pay even if the cluster has to replace every member for it.
    """
    if memory.settled != now.size or memory.rate(now.size).weight < _SETTLED_WINDOWS:
        return None
    for name, role in sorted(now.roles.items()):
        if not role.uses or len(role.uses) * memory.cost > _WORTH * now.horizon:
            continue
        lower = {**_lower_cpu(role), **_lower_memory(role)}
        if lower:
            reasons = [_lowered_text(role, resource, value) for resource, value in lower.items()]
            return ScalingDecision(f"{name}: {'; '.join(reasons)}", memory, resources={name: lower})
    return None


def _lower_cpu(role: RoleUsage) -> dict[str, float]:
    requested = min((use.cpu_request or 0.0 for use in role.uses), default=0.0)
    peak = max(use.cpu_peak for use in role.uses)
    needed = max(_LEAST_CPU, math.ceil(peak * _CPU_RESERVE * 10) / 10)
    return {"cpu": needed} if peak > 0 and needed <= requested * _ROOMY else {}


def _lower_memory(role: RoleUsage) -> dict[str, float]:
    limit = min((use.memory_limit or 0 for use in role.uses), default=0)
    peak = max(use.memory for use in role.uses)
    needed = max(_LEAST_MEMORY, _rounded(peak * _MEMORY_RESERVE))
    return {"memory": needed} if peak > 0 and needed <= limit * _ROOMY else {}


def _lowered_text(role: RoleUsage, resource: str, value: float) -> str:
    if resource == "cpu":
        peak, had = max(use.cpu_peak for use in role.uses), max(use.cpu_request or 0 for use in role.uses)
        return f"at most {peak:.2f} of {had:g} cores are used: {value:g} each"
    peak, had = max(use.memory for use in role.uses), max(use.memory_limit or 0 for use in role.uses)
    return f"at most {_mib(peak)} of {_mib(had)} memory is used: {_mib(value)} each"


def _rounded(size: float) -> int:
    return math.ceil(size / _UNIT) * _UNIT


def _mib(size: float) -> str:
    return f"{size / 1024**2:.0f} MiB"
