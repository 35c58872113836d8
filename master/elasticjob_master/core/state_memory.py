"""Says what checkpoints in memory would save a job that has none, where its members have room.

Nothing is said unless the writes have been measured, and the memory of the members is known.
"""

from __future__ import annotations

import math

_LEAST_SHARE = 0.01
_LEAST_SECONDS = 60.0
"""A shorter training is only its beginning."""
_CHECKPOINTS = 6
"""The folder needs room for as many of what a member saves; no member saves more than the whole."""
_MARGIN = 0.1
"""The part of the memory limit that stays free."""
_MIB = 1 << 20


def advice(
    *, save_seconds: float, saved_bytes: int, training_seconds: float, limit: int | None, used: int
) -> str:
    """Return a sentence for users; empty: it would save too little, or more memory is needed.

    Args:
        save_seconds: what writing checkpoints to the storage has taken.
        saved_bytes: the size of a whole checkpoint; 0: not known.
        training_seconds: the seconds of training, with these writes.
        limit: the memory limit of a member whose job could keep checkpoints in memory.
        used: the most memory that a member uses; 0: not known.
    """
    size = math.ceil(_CHECKPOINTS * saved_bytes / _MIB)
    if not (limit and used and size) or training_seconds < _LEAST_SECONDS:
        return ""
    share = save_seconds / training_seconds
    if share < _LEAST_SHARE or used + size * _MIB > (1 - _MARGIN) * limit:
        return ""
    return (
        f"writing checkpoints takes {share:.0%} of the training: a job with "
        f"spec.agent.stateMemory: {size}Mi would save up to that, and the members have room for it "
        f"({used // _MIB} of {limit // _MIB} MiB of memory are in use)"
    )
