"""Describes to users the results of changed CPU and memory."""

from __future__ import annotations

from elasticjob_master.core.autoscale.resource_rules import mib
from elasticjob_master.core.autoscale.scaling_memory import RolePeaks, ScalingMemory


def outcome(memory: ScalingMemory, role: str) -> str:
    """Return the changes of a role's members and their results; empty if there were none."""
    peaks = memory.resources.peaks.get(role, RolePeaks())
    texts = []
    if peaks.before_lowering is not None:
        cpu, limit = peaks.before_lowering
        texts.append(f"lowered: each had {cpu:g} cores and {mib(limit)}")
    elif peaks.keeps_resources:
        texts.append("was lowered and needed it: has it back, and is not lowered again")
    if peaks.raised_memory:
        text = f"memory raised to {mib(peaks.raised_memory)}"
        if peaks.fills_memory:
            text += ": the program fills it, so it gets no more"
        elif peaks.memory_has_room:
            text += ": that is enough"
        texts.append(text)
    servers = memory.servers
    trial = servers.trial
    if trial is not None and trial.role == role:
        before = f"{trial.servers_before} members"
        if not trial.servers_before:
            before = f"{trial.cores_before:g} cores"
        return "; ".join([*texts, f"has more than {before}: whether that helps is being measured"])
    if role in servers.failed_cpu:
        texts.append("more CPU did not help")
    if role in servers.failed_servers:
        texts.append("more members did not help")
    return "; ".join(texts)
