"""Which numbers of members are worth a thought: powers of two, and halves and quarters between them.

They fill nodes and divide batches.
"""

from __future__ import annotations

from collections.abc import Iterable

from elasticjob_master.core.autoscale.decision import Bounds


def candidates(bounds: Bounds, size: int, others: Iterable[int] = ()) -> list[int]:
    """Return the sizes that may be requested, and the present one.

    Args:
        bounds: the sizes allowed.
        size: the present size.
        others: further sizes, which count where they are allowed.
    """
    each = bounds.multiple_of
    found = {bounds.minimum, bounds.maximum, *others}
    step = 1
    while step * each <= bounds.maximum:
        found |= {groups * each for groups in (step, step * 5 // 4, step * 3 // 2, step * 7 // 4)}
        step *= 2
    return sorted({size, *(n for n in found if is_allowed(n, bounds))})


def is_allowed(size: int, bounds: Bounds) -> bool:
    """Return whether a size may be requested."""
    return bounds.minimum <= size <= bounds.maximum and size % bounds.multiple_of == 0


def allowed(size: int, bounds: Bounds) -> int:
    """Return the largest size within the bounds that is not larger than this one."""
    size = min(max(size, bounds.minimum), bounds.maximum)
    return max(bounds.minimum, size // bounds.multiple_of * bounds.multiple_of)
