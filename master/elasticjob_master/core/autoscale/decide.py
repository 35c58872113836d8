"""The auto-scaler's entry point: applies the rules, the most urgent one first."""

from __future__ import annotations

from dataclasses import replace

from elasticjob_master.core.autoscale import (
    needs,
    parameter_servers,
    pending,
    resource_rules,
    size_search,
)
from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.measurements import adjusted_to
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory


def decide(memory: ScalingMemory, now: ScalingInputs) -> ScalingDecision:
    """Return what to change of a job that trains at its desired size."""
    memory = adjusted_to(memory, size=now.size, setting=now.setting)
    if now.size not in memory.rates.by_size:
        return ScalingDecision(f"{now.size} members are not measured yet", memory)
    may_change_resources = now.wall >= memory.resources.retry_at and now.window_is_over
    if may_change_resources:
        memory = resource_rules.after_raised_memory(memory, now)
        more = resource_rules.give_back(memory, now) or resource_rules.more_memory(memory, now)
        if more is not None:
            return more
    memory, decision = parameter_servers.judge_trial(memory, now)
    if decision is not None:
        return decision
    if may_change_resources:
        more = parameter_servers.more_for_servers(memory, now)
        if more is not None:
            return more
    bounds = pending.narrowed_bounds(now.bounds, memory, now.wall)
    bounds = _with_memory(bounds, resource_rules.least_size(memory, now), now.size)
    decision = needs.with_first_requests(size_search.next_size(memory, now, bounds), now)
    shrinks = decision.size is not None and decision.size < now.size
    if shrinks and not now.window_is_over and parameter_servers.more_for_servers(memory, now):
        # The servers may be what makes this size poor: a whole window shows how busy they are.
        return ScalingDecision(f"{now.size} members keep the servers busy, so far", memory)
    if not decision.changes_nothing or not may_change_resources:
        return decision
    return resource_rules.lower_requests(decision.memory, now) or decision


def _with_memory(bounds: Bounds, least: int, size: int) -> Bounds:
    """Return the bounds without sizes at which members would run out of memory."""
    least += -least % bounds.multiple_of
    minimum = max(bounds.minimum, min(least, size, bounds.maximum))
    return replace(bounds, minimum=minimum)
