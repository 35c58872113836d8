"""More memory from measured use, before members are killed for lack of it; `lowering` has the other direction.

After such a kill the operator doubles the memory; here it is increased before. CPU that is fully used is not increased:
more members are the answer to that, except for parameter servers.
"""

from __future__ import annotations

import math

from elasticjob_master.core.autoscale.decision import ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory

NEARLY_USED_UP = 0.9
"""Memory in use, relative to the limit, from which on a sample counts as near the limit."""
_SUSTAINED = 0.5
_MORE_MEMORY = 1.5
_UNIT = 64 * 1024**2


def more_memory(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision | None:
    """Give a role more memory if a member was near its limit for most of the time."""
    for name, role in sorted(now.roles.items()):
        near_limit = [use for use in role.uses if use.memory_limit and use.near_limit >= _SUSTAINED]
        if not near_limit:
            continue
        worst = max(near_limit, key=lambda use: use.memory)
        had = max(use.memory_limit or 0 for use in role.uses)
        wanted = rounded(worst.memory * _MORE_MEMORY)
        room = now.free_resources.get("memory", math.inf) / len(role.uses)
        possible = int(min(wanted, role.most_memory, had + room)) // 1024**2 * 1024**2
        if possible < had * 1.05:
            continue
        bound = f" ({role.memory_bound} or resourceLimits.memory allow no more)" if possible < wanted else ""
        reason = (
            f"{worst.name} uses {mib(worst.memory)} of its {mib(worst.memory_limit or 0)} memory and was above "
            f"{NEARLY_USED_UP:.0%} in {worst.near_limit:.0%} of the looks: {name} gets {mib(possible)} each{bound}"
        )
        return ScalingDecision(reason, memory, resources={name: {"memory": possible}})
    return None


def rounded(size: float) -> int:
    """Return bytes, rounded up to a multiple of 64 MiB."""
    return math.ceil(size / _UNIT) * _UNIT


def mib(size: float) -> str:
    """Return bytes as text."""
    return f"{size / 1024**2:.0f} MiB"
