"""CPU and memory of roles whose template requests none.

From what their members use, and how many fit the limits. Only requests are set, never limits. The
first minutes may show too little, because an evaluation or a checkpoint comes later: a limit made
from them would kill a member that trained well without one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import structs

from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.job_scaling import JobScaling
from elasticjob_master.core.autoscale.resource_rules import mib, rounded
from elasticjob_master.core.autoscale.scaling_memory import RolePeaks

_MEMORY_RESERVE = 1.5
_CPU_RESERVE = 1.2
"""A request is the measured use times this: with too little CPU a member is slower, with too little
memory evicted.
"""
_LEAST_MEMORY = 256 * 1024**2
_LEAST_CPU = 0.1
_WORTH = 0.05
"""The part of the time left that the replacement of the members may cost."""
_RESCALES = 2
"""Changes of the world that the plan costs: members are added, then those without requests are
replaced at once.
"""


def need(peaks: RolePeaks | None) -> dict[str, float] | None:
    """Return the cores and bytes to request for each member of a role.

    None: its use is not known yet.
    """
    if peaks is None or peaks.memory <= 0 or peaks.steady <= 0:
        return None
    return {
        "cpu": max(_LEAST_CPU, math.ceil(round(peaks.steady * _CPU_RESERVE * 10, 6)) / 10),
        "memory": max(_LEAST_MEMORY, rounded(peaks.memory * _MEMORY_RESERVE)),
    }


def bounds_by_need(scaling: JobScaling, peaks: Mapping[str, RolePeaks]) -> Bounds:
    """Return the sizes that resourceLimits allow where roles request nothing.

    As many as fit by what members need.
    Room is left for the other roles that request nothing.
    """
    bounds = scaling.bounds
    own = scaling.roles.get(scaling.role)
    needs = {
        role: need(peaks.get(role)) for role, each in scaling.roles.items() if each.is_unwritten
    }
    if own is None or not needs or not scaling.free_resources:
        return bounds
    if own.is_unwritten and needs[scaling.role] is None:
        return _not_yet(bounds, scaling.desired) if bounds.by_need else bounds
    maximum = bounds.maximum
    limit = bounds.limit
    for resource, free in scaling.free_resources.items():
        others = sum(
            scaling.roles[role].desired * (wanted or {}).get(resource, 0.0)
            for role, wanted in needs.items()
        )
        more = (needs.get(scaling.role) or {}).get(resource, 0.0)
        each = own.requests.get(resource, 0.0) + more
        if each <= 0:
            continue
        room = (
            free
            + own.requests.get(resource, 0.0) * scaling.desired
            - (others - more * scaling.desired)
        )
        possible = max(0, math.floor(room / each + 1e-9))
        if possible < maximum:
            maximum = possible
            limit = f"autoscaling.resourceLimits.{resource}, of which a member needs {_text(resource, each)},"
    maximum -= maximum % bounds.multiple_of
    if maximum < bounds.minimum:
        size = max(1, scaling.desired)
        return Bounds(size, size, limit)
    return dataclasses.replace(bounds, maximum=maximum, limit=limit, by_need=False)


def _not_yet(bounds: Bounds, size: int) -> Bounds:
    limit = "what a member needs of autoscaling.resourceLimits is not measured yet; that"
    return dataclasses.replace(
        bounds,
        minimum=min(size, bounds.minimum),
        maximum=size,
        limit=limit,
        limit_is_temporary=True,
    )


@dataclass(frozen=True)
class Requests:
    """CPU and memory for the roles that request none.

    Attributes:
        resources: by role, cores and bytes of each of its members.
        replace: role and index of the members that must be replaced for it.
        text: why so much.
    """

    resources: Mapping[str, Mapping[str, float]]
    replace: tuple[tuple[str, int], ...]
    text: str


def requests_of(peaks: Mapping[str, RolePeaks], now: ScalingInputs, size: int) -> Requests | None:
    """Return what roles that request nothing get when the scaled role has this size.

    None: nothing, or no room.
    """
    wanted = {role: need(peaks.get(role)) for role in sorted(now.unwritten)}
    resources = {role: each for role, each in wanted.items() if each is not None}
    sizes = {
        role: size if role == now.role else len(each.indices)
        for role, each in now.unwritten.items()
    }
    for resource, free in now.free_resources.items():
        if sum(each[resource] * sizes[role] for role, each in resources.items()) > free:
            return None
    if not resources:
        return None
    old = (
        (role, index)
        for role in resources
        if now.unwritten[role].best_effort
        for index in now.unwritten[role].indices
    )
    texts = (_use_text(role, peaks[role], each) for role, each in resources.items())
    return Requests(resources, tuple(old), "; ".join(texts))


def with_first_requests(decision: ScalingDecision, now: ScalingInputs) -> ScalingDecision:
    """Return the decision with CPU and memory for all roles that request none, if it changes the world anyway.

    That is when the job grows; when its search has settled without that, a plan of its own. It must
    pay.
    """
    memory = decision.memory
    grows = decision.size is not None and decision.size > now.size
    settled = decision.changes_nothing and memory.settled == now.size
    if (
        not (grows or settled)
        or now.wall < memory.resources_at
        or _RESCALES * memory.cost > _WORTH * now.horizon
    ):
        return decision
    requests = requests_of(memory.peaks, now, now.size if decision.size is None else decision.size)
    if requests is None:
        return decision
    return dataclasses.replace(
        decision,
        reason=f"{decision.reason}; {requests.text}",
        memory=structs.replace(
            memory, undoing=any(role != now.role for role in requests.resources)
        ),
        resources=requests.resources,
        replace=requests.replace,
    )


def _use_text(role: str, peaks: RolePeaks, wanted: Mapping[str, float]) -> str:
    return (
        f"{role} requests nothing, and a member has used {peaks.steady:.2f} cores and at most {mib(peaks.memory)}: "
        f"{wanted['cpu']:g} cores and {mib(wanted['memory'])} each"
    )


def _text(resource: str, amount: float) -> str:
    return mib(amount) if resource == "memory" else f"{amount:g} cores"
