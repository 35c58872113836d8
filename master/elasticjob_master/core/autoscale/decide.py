"""The auto-scaler's entry point: applies the rules, the most urgent one first."""

from __future__ import annotations

from elasticjob_master.core.autoscale import (
    first_plan,
    lowering,
    needs,
    parameter_servers,
    pending,
    resource_rules,
    size_search,
)
from elasticjob_master.core.autoscale.decision import ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory, adjusted_to


def decide(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision:
    """Return what to change of a job that trains at its desired size, which has been measured."""
    memory = adjusted_to(memory, size=now.size, setting=now.setting)
    if now.size not in memory.rates:
        return ScalingDecision(f"{now.size} members are not measured yet", memory)
    may_change_resources = now.wall >= memory.resources_at and now.window_is_over
    if may_change_resources:
        memory = resource_rules.with_room_seen(memory, now)
        more = lowering.give_back(memory, now) or resource_rules.more_memory(memory, now)
        if more is not None:
            return more
    judged = parameter_servers.judged(memory, now)
    if isinstance(judged, ScalingDecision):
        return judged
    memory = judged
    same = first_plan.compared(memory, now)
    if isinstance(same, ScalingDecision):
        return needs.with_first_requests(same, now)
    memory = same
    bounds = pending.narrowed_bounds(now.bounds, memory, now.wall)
    if may_change_resources:
        more = parameter_servers.more_cpu(memory, now) or parameter_servers.more_servers(
            memory, now
        )
        if more is not None:
            return more
    decision = needs.with_first_requests(size_search.next_size(memory, now, bounds), now)
    if not decision.changes_nothing or not may_change_resources:
        return decision
    return lowering.lower_requests(decision.memory, now) or decision
