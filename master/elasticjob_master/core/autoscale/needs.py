"""CPU and memory for roles whose template requests none, and how many such members fit the limits.

Both follow from what the members use. Only requests are set, never limits: the first minutes may
show too little, because an evaluation or a checkpoint comes later, and a limit made from them would
kill a member that trained well without one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from elasticjob_api.pod_identity import MemberKey

from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.job_scaling import JobScaling
from elasticjob_master.core.autoscale.resource_rules import mib, rounded, tenths
from elasticjob_master.core.autoscale.scaling_memory import RolePeaks
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


def need(peaks: RolePeaks | None) -> dict[str, float] | None:
    """Return the cores and bytes to request for each member of a role; None if its use is unknown."""
    if peaks is None or peaks.memory <= 0 or peaks.window_cpu <= 0:
        return None
    return {
        "cpu": tenths(peaks.window_cpu * THRESHOLDS.cpu_reserve),
        "memory": rounded(peaks.memory * THRESHOLDS.reserve),
    }


def bounds_by_need(scaling: JobScaling, peaks: Mapping[str, RolePeaks]) -> Bounds:
    """Return the sizes that resourceLimits allow where roles request nothing.

    The maximum is the number of members that fit by what each needs, beside the other roles that
    request nothing.
    """
    bounds = scaling.bounds
    own = scaling.roles.get(scaling.role)
    unwritten = {role: each for role, each in scaling.roles.items() if each.is_unwritten}
    needs = {role: need(peaks.get(role)) for role in unwritten}
    if own is None or not needs or not scaling.free_resources:
        return bounds
    unknown = [role for role, each in unwritten.items() if needs[role] is None and each.indices]
    if bounds.by_need and unknown:
        return dataclasses.replace(
            bounds,
            minimum=min(scaling.desired, bounds.minimum),
            maximum=scaling.desired,
            limit=f"what a member of {' and '.join(unknown)} needs of autoscaling.resourceLimits is "
            "not measured yet; that",
            limit_is_temporary=True,
        )
    if own.is_unwritten and needs[scaling.role] is None:
        return bounds
    for resource, free in scaling.free_resources.items():
        needed = {role: (each or {}).get(resource, 0.0) for role, each in needs.items()}
        requested = own.requests.get(resource, 0.0)
        each = requested + needed.pop(scaling.role, 0.0)
        others = sum(scaling.roles[role].desired * amount for role, amount in needed.items())
        room = max(0.0, free + requested * scaling.desired - others)
        if each > 0 and (possible := math.floor(room / each + 1e-9)) < bounds.maximum:
            amount = mib(each) if resource == "memory" else f"{each:g} cores"
            limit = f"autoscaling.resourceLimits.{resource}, of which a member needs {amount},"
            bounds = dataclasses.replace(bounds, maximum=possible, limit=limit)
    maximum = bounds.maximum - bounds.maximum % bounds.multiple_of
    if maximum < bounds.minimum:
        size = max(1, scaling.desired)
        return Bounds(size, size, bounds.limit)
    return dataclasses.replace(bounds, maximum=maximum, by_need=False)


@dataclass(frozen=True)
class Requests:
    """CPU and memory for the roles that request none.

    Attributes:
        resources: cores and bytes of each member, by role.
        replace: role and index of the members that must be replaced to get them.
        text: the measured use that they follow from.
    """

    resources: Mapping[str, Mapping[str, float]]
    replace: tuple[MemberKey, ...]
    text: str


def requests_of(peaks: Mapping[str, RolePeaks], now: ScalingInputs, size: int) -> Requests | None:
    """Return the requests of roles that have none, when the scaled role has this size.

    None: no need is known, or the limits leave no room.
    """
    needs = {role: need(peaks.get(role)) for role in sorted(now.unwritten)}
    resources = {role: needed for role, needed in needs.items() if needed is not None}
    sizes = {role: len(each.indices) for role, each in now.unwritten.items()}
    if now.role in sizes:
        sizes[now.role] = size
    for resource, free in now.free_resources.items():
        if sum(each[resource] * sizes[role] for role, each in resources.items()) > free:
            return None
    if not resources:
        return None
    replaced = [
        (role, index)
        for role in resources
        if now.unwritten[role].best_effort
        for index in now.unwritten[role].indices
    ]
    texts = [
        f"{role} requests nothing, and a member has used {peaks[role].window_cpu:.2f} cores and "
        f"at most {mib(peaks[role].memory)}: {needed['cpu']:g} cores and "
        f"{mib(needed['memory'])} each"
        for role, needed in resources.items()
    ]
    return Requests(resources, tuple(replaced), "; ".join(texts))


def with_first_requests(decision: ScalingDecision, now: ScalingInputs) -> ScalingDecision:
    """Return the decision with CPU and memory for all roles that request none.

    The requests come with a plan that grows the job, because it changes the world anyway. If the
    search settles without one, they are a plan of their own, if that pays.
    """
    memory = decision.memory
    size = decision.size or now.size
    # Members are added, then the others are replaced.
    pays = 2 * memory.rates.rescale_seconds <= THRESHOLDS.resources_cost * now.horizon
    settled = decision.changes_nothing and memory.search.settled_size == now.size
    if not (size > now.size or (settled and pays)) or now.wall < memory.resources.retry_at:
        return decision
    requests = requests_of(memory.resources.peaks, now, size)
    if requests is None:
        return decision
    changes_setting = any(role != now.role for role in requests.resources)
    return dataclasses.replace(
        decision,
        reason=f"{decision.reason}; {requests.text}",
        memory=memory.with_servers(rates_stay_valid=changes_setting),
        resources=requests.resources,
        replace=requests.replace,
    )
