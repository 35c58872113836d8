"""Memories of the auto-scaler, given by the names under which they are stored."""

from __future__ import annotations

from typing import Any

import msgspec
from elasticjob_master.core.autoscale import scaling_memory
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory


def memory_of(**stored: Any) -> ScalingMemory:
    """Return the memory with these stored fields."""
    return scaling_memory.restored(msgspec.to_builtins(stored, str_keys=True))


def changed(memory: ScalingMemory, **stored: Any) -> ScalingMemory:
    """Return a memory with other values of these stored fields."""
    return memory_of(**(scaling_memory.stored(memory) | stored))
