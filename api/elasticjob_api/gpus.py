"""Derives the number of training processes of a member from its GPUs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from elasticjob_api.frameworks import FRAMEWORKS
from elasticjob_api.limits import MAX_SLOTS
from elasticjob_api.quantity import parse_quantity

VISIBLE_DEVICES: Mapping[str, str] = MappingProxyType(
    {
        "nvidia.com/gpu": "CUDA_VISIBLE_DEVICES",
        "amd.com/gpu": "HIP_VISIBLE_DEVICES",
        "gpu.intel.com/i915": "ZE_AFFINITY_MASK",
        "gpu.intel.com/xe": "ZE_AFFINITY_MASK",
    }
)
"""The GPU resources, each with the variable that limits a process to some GPUs."""


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a container: their resource, and their number, which is at least 1."""

    resource: str
    count: int


def gpus_of(container: Mapping[str, Any]) -> Gpus | None:
    """Return the GPUs in the limits of a container of a pod template."""
    limits = (container.get("resources") or {}).get("limits") or {}
    for resource in VISIBLE_DEVICES:
        if (count := int(parse_quantity(limits.get(resource) or 0))) > 0:
            return Gpus(resource, count)
    return None


def slots(framework: str, slots_per_replica: int | None, gpus: Gpus | None) -> int:
    """Return the number of training processes of a member.

    Args:
        framework: the job's framework.
        slots_per_replica: the number that the job sets, or None.
        gpus: the GPUs of the member's first container.
    """
    if slots_per_replica is not None:
        return slots_per_replica
    if gpus is None or not FRAMEWORKS[framework].process_per_gpu:
        return 1
    return min(gpus.count, MAX_SLOTS)


def slots_error(slots_per_replica: int | None, gpus: Gpus | None) -> str | None:
    """Return why the processes cannot divide the GPUs; None if they can, or without GPUs."""
    if slots_per_replica is None or gpus is None or gpus.count % slots_per_replica == 0:
        return None
    return (
        f"{slots_per_replica} processes cannot divide the {gpus.count} of {gpus.resource} in the "
        "limits of the first "
        "container: set a number that divides it, or none for a process per GPU where the "
        "framework has that"
    )


def divided_devices(framework: str, slots: int, gpus: Gpus | None) -> str | None:
    """Return `VARIABLE=count` if each process gets a part of the GPUs; None if it gets all."""
    if gpus is None or slots == 1 or gpus.count < slots or FRAMEWORKS[framework].process_per_gpu:
        return None
    return f"{VISIBLE_DEVICES[gpus.resource]}={gpus.count}"
