"""The one question to the auto-scaler: what shall change now? The rules in the order of what cannot wait."""

from __future__ import annotations

from elasticjob_master.core.autoscale import memory_rule, pending, servers, workers
from elasticjob_master.core.autoscale.decision import Decision, Situation
from elasticjob_master.core.autoscale.memory import Memory, placed


def decide(memory: Memory, now: Situation) -> Decision:
    """Decide for a job that is in place, and whose present size is measured."""
    memory = placed(memory, size=now.size, setting=now.setting)
    if now.size not in memory.rates:
        return Decision(f"{now.size} members are not measured yet", memory)
    resources = now.wall >= memory.resources_at
    if resources and (more := memory_rule.more_memory(memory, now)) is not None:
        return more
    bounds = pending.narrowed(now.bounds, memory, now.wall)
    if resources and (relief := servers.relieve(memory, now, bounds)) is not None:
        return relief
    decision = workers.next_size(memory, now, servers.bounded(bounds, now))
    if not decision.stays or not resources:
        return decision
    return memory_rule.less(decision.memory, now) or decision
