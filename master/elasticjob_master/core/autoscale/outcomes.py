"""What became of the CPU and memory that the auto-scaler has changed, as people are told it."""

from __future__ import annotations

from elasticjob_master.core.autoscale.resource_rules import mib
from elasticjob_master.core.autoscale.scaling_memory import RolePeaks, ScalingMemory


def outcome(memory: ScalingMemory, role: str) -> str:
    """Return what was changed of a role's members, and whether it has helped.

    Empty: nothing was.
    """
    return "; ".join(
        filter(
            None,
            (*_outcomes_of_plans(memory.peaks.get(role, RolePeaks())), _more_cpu(memory, role)),
        )
    )


def _outcomes_of_plans(peaks: RolePeaks) -> tuple[str, str]:
    lowered = ""
    if peaks.before is not None:
        lowered = f"lowered: each had {peaks.before[0]:g} cores and {mib(peaks.before[1])}"
    elif peaks.kept:
        lowered = "was lowered and needed it: has it back, and is not lowered again"
    if not peaks.raised_to:
        return lowered, ""
    judged = (
        "the program fills it, so it gets no more"
        if peaks.filled
        else "that is enough"
        if peaks.roomy
        else ""
    )
    return lowered, f"memory raised to {mib(peaks.raised_to)}" + (f": {judged}" if judged else "")


def _more_cpu(memory: ScalingMemory, role: str) -> str:
    if memory.relief is not None and memory.relief.role == role and memory.relief.servers:
        return (
            f"has more than {memory.relief.servers} members: whether that helps is being measured"
        )
    if memory.relief is not None and memory.relief.role == role:
        return f"has more than {memory.relief.before:g} cores: whether that helps is being measured"
    tried = (("more CPU", memory.useless), ("more members", memory.enough))
    return "; ".join(f"{what} did not help" for what, roles in tried if role in roles)
