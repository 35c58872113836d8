"""Which numbers of members are worth trying.

Round ones, as nodes and batches are divided into powers of two. Where the members do not fill a
whole number of nodes, all of them wait for those that share a node.
"""

from __future__ import annotations

from elasticjob_master.core.autoscale.decision import Bounds
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS


def next_larger(size: int, bounds: Bounds) -> int:
    """Return about twice the size: the roundest number there, within the bounds."""
    most = min(bounds.maximum, int(THRESHOLDS.largest_step * size))
    if most == bounds.maximum and most <= 2 * size:
        return most
    sizes = _allowed_sizes(int(THRESHOLDS.smallest_step * size) + 1, most, bounds)
    if not sizes:
        return min(bounds.maximum, 2 * size)
    return max(sizes, key=lambda n: (_roundness(n, bounds), n <= 2 * size, n))


def rounder(size: int, bounds: Bounds, *, below: int) -> int:
    """Return the roundest of the sizes that are a little larger and below another size."""
    most = min(below - 1, bounds.maximum, int(THRESHOLDS.rounding * size))
    sizes = _allowed_sizes(size, most, bounds)
    return max(sizes, key=lambda n: (_roundness(n, bounds), -n), default=size)


def allowed(size: int, bounds: Bounds) -> int:
    """Return the largest size within the bounds that is not larger than this one."""
    size = min(max(size, bounds.minimum), bounds.maximum)
    return max(bounds.minimum, size // bounds.multiple_of * bounds.multiple_of)


def _allowed_sizes(low: int, high: int, bounds: Bounds) -> list[int]:
    return [n for n in range(max(low, bounds.minimum), high + 1) if n % bounds.multiple_of == 0]


def _roundness(size: int, bounds: Bounds) -> int:
    """Return the largest power of two that divides the number of groups, up to a bound."""
    groups = max(1, size // bounds.multiple_of)
    return min(groups & -groups, THRESHOLDS.divisible_enough)
