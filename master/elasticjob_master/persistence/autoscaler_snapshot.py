"""Between the auto-scaler's live memory and the stored one."""

from __future__ import annotations

from dataclasses import fields

from elasticjob_master.core.autoscale.scaling_memory import MeasuredRate, ScalingMemory
from elasticjob_master.core.stored_state import StoredMemory

_SAME = tuple(field.name for field in fields(ScalingMemory) if field.name != "rates")
"""Stored as they are; the rates are stored as two plain maps."""


def store_memory(memory: ScalingMemory) -> StoredMemory:
    """Return what is stored."""
    rates = {size: rate.mean for size, rate in memory.rates.items()}
    weights = {size: rate.weight for size, rate in memory.rates.items()}
    return StoredMemory(rates=rates, weights=weights, **{name: getattr(memory, name) for name in _SAME})


def memory(stored: StoredMemory) -> ScalingMemory:
    """Return the memory that was stored."""
    rates = {size: MeasuredRate(mean, stored.weights.get(size, 1.0)) for size, mean in stored.rates.items()}
    return ScalingMemory(rates=rates, **{name: getattr(stored, name) for name in _SAME})
