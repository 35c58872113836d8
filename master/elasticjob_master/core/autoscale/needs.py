"""CPU and memory for roles whose template requests none, and how many such members fit the limits.

Both follow from what the members use. Only requests are set, never limits: the first minutes may
show too little, because an evaluation or a checkpoint comes later, and a limit made from them would
kill a member that trained well without one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.job_scaling import JobScaling
from elasticjob_master.core.autoscale.resource_rules import mib, rounded, tenths
from elasticjob_master.core.autoscale.scaling_memory import RolePeaks
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


def need(peaks: RolePeaks | None) -> dict[str, float] | None:
    """Return the cores and bytes to request for a member of a role; None if its use is unknown."""
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
            limit=f"what a member of {' and '.join(unknown)} needs of autoscaling.resourceLimits "
            "is not measured yet; that",
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


def with_first_requests(decision: ScalingDecision, now: ScalingInputs) -> ScalingDecision:
    """Return the decision with CPU and memory for all roles that request none.

    The requests come with a plan that grows the job, because it changes the world anyway. If the
    search settles without one, they are a plan of their own, if that pays.
    """
    memory = decision.memory
    grows = decision.size is not None and decision.size > now.size
    # Members are added, then the others are replaced.
    pays = 2 * memory.rates.rescale_seconds <= THRESHOLDS.minor * now.horizon
    settled = decision.changes_nothing and memory.search.settled_size == now.size
    if not (grows or (settled and pays)) or now.wall < memory.resources.retry_at:
        return decision
    requests = with_requests(decision, memory.resources.peaks, now)
    if not requests.resources:
        return decision
    changes_setting = any(role != now.role for role in requests.resources)
    after = memory.with_servers(rates_stay_valid=changes_setting)
    return dataclasses.replace(requests, memory=after)


def with_requests(
    decision: ScalingDecision, peaks: Mapping[str, RolePeaks], now: ScalingInputs
) -> ScalingDecision:
    """Return the decision with the requests of roles that have none, at the size that it decides.

    It stays as it is if no need is known, or if the limits leave no room.
    """
    needs = {role: need(peaks.get(role)) for role in sorted(now.unwritten)}
    resources = {role: needed for role, needed in needs.items() if needed is not None}
    sizes = {role: len(each.indices) for role, each in now.unwritten.items()}
    sizes[now.role] = decision.size or now.size
    for resource, free in now.free_resources.items():
        if sum(each[resource] * sizes[role] for role, each in resources.items()) > free:
            return decision
    texts = [
        f"{role} requests nothing, and a member has used {peaks[role].window_cpu:.2f} cores and "
        f"at most {mib(peaks[role].memory)}: {needed['cpu']:g} cores and "
        f"{mib(needed['memory'])} each"
        for role, needed in resources.items()
    ]
    return dataclasses.replace(
        decision,
        reason="; ".join(filter(None, (decision.reason, *texts))),
        resources=resources,
        replace=tuple(
            (role, index)
            for role in resources
            if now.unwritten[role].best_effort
            for index in now.unwritten[role].indices
        ),
    )
