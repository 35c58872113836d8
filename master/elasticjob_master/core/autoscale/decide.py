"""The one question to the auto-scaler: what shall change now? The rules in the order of what cannot wait."""

from __future__ import annotations

from elasticjob_master.core.autoscale import parameter_servers, pending, resource_rules, size_search
from elasticjob_master.core.autoscale.decision import ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory, adjusted_to


def decide(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision:
    """Decide for a job that is in place, and whose present size is measured."""
    memory = adjusted_to(memory, size=now.size, setting=now.setting)
    if now.size not in memory.rates:
        return ScalingDecision(f"{now.size} members are not measured yet", memory)
    resources = now.wall >= memory.resources_at
    if resources and (more := resource_rules.more_memory(memory, now)) is not None:
        return more
    bounds = pending.narrowed_bounds(now.bounds, memory, now.wall)
    if resources and (relief := parameter_servers.more_cpu(memory, now, bounds)) is not None:
        return relief
    decision = size_search.next_size(memory, now, parameter_servers.narrowed_bounds(bounds, now))
    if not decision.changes_nothing or not resources:
        return decision
    return resource_rules.lower_requests(decision.memory, now) or decision
