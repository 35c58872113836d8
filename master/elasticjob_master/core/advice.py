"""Says which members have processes in standby, and what checkpoints in memory would save."""

from __future__ import annotations

import math
from collections.abc import Iterable

from elasticjob_master.core.rendezvous.members import Member

_LEAST_SHARE = 0.01
_LEAST_SECONDS = 60.0
"""A shorter training is only its beginning."""
_CHECKPOINTS = 6
"""The folder needs room for as many of what a member saves; no member saves more than the whole."""
_MARGIN = 0.1
"""The part of the memory limit that stays free."""
_MIB = 1 << 20
_MOST_REASONS = 3
_MOST_NAMES = 3


def standby_summary(members: Iterable[Member]) -> str:
    """Return how many members have processes in standby, and why others have none; often empty."""
    ready = 0
    without: dict[str, list[str]] = {}
    for member in sorted(members, key=lambda member: member.identity.key):
        count, why_none = member.standby
        if count:
            ready += 1
        elif why_none:
            role, index = member.identity.key
            without.setdefault(why_none, []).append(f"{role}-{index}")
    total = ready + sum(map(len, without.values()))
    if not total:
        return ""
    texts = [f"{ready} of {total} members have processes in standby"]
    for why, names in list(without.items())[:_MOST_REASONS]:
        others = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        texts.append(f"{', '.join(names[:_MOST_NAMES])}{others}: {why}")
    if len(without) > _MOST_REASONS:
        texts.append(f"{len(without) - _MOST_REASONS} other reasons")
    return "; ".join(texts)


def state_memory_advice(
    *, save_seconds: float, saved_bytes: int, training_seconds: float, limit: int | None, used: int
) -> str:
    """Return what checkpoints in memory would save a job that has none and has room for them.

    It is empty if they would save too little or need more memory, or before the writes of
    checkpoints have been measured and the memory of the members is known.

    Args:
        save_seconds: what writing checkpoints to the storage has taken of `training_seconds`.
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
