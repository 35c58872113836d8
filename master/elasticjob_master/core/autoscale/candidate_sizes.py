"""Which numbers of members are worth trying.

Round ones, as nodes and batches are divided into powers of two. At a size that fills no whole
number of nodes, some members share one with fewer others, and all wait for the slowest.
"""

from __future__ import annotations

from elasticjob_master.core.autoscale.decision import Bounds

_LEAST_STEP = 1.3
_MOST_STEP = 2.25
_ROUNDER = 1.125
"""A size may be larger by this factor to be rounder."""
_DIVISIBLE_ENOUGH = 8
"""A multiple of it is as good as any other one."""


def next_larger(size: int, bounds: Bounds) -> int:
    """Return about twice the size: the roundest number there, within the bounds."""
    most = min(bounds.maximum, int(_MOST_STEP * size))
    if most == bounds.maximum and most <= 2 * size:
        return most
    wanted = _allowed(int(_LEAST_STEP * size) + 1, most, bounds) or [min(bounds.maximum, 2 * size)]
    return max(wanted, key=lambda n: (_roundness(n, bounds), n <= 2 * size, n))


def rounder(size: int, bounds: Bounds, *, below: int) -> int:
    """Return the roundest of the sizes that are a little larger, and below another size.

    At least the size itself.
    """
    wanted = _allowed(size, min(below - 1, bounds.maximum, int(_ROUNDER * size)), bounds)
    return max(wanted, key=lambda n: (_roundness(n, bounds), -n), default=size)


def allowed(size: int, bounds: Bounds) -> int:
    """Return the largest size within the bounds that is not larger than this one."""
    size = min(max(size, bounds.minimum), bounds.maximum)
    return max(bounds.minimum, size // bounds.multiple_of * bounds.multiple_of)


def _allowed(low: int, high: int, bounds: Bounds) -> list[int]:
    return [n for n in range(max(low, bounds.minimum), high + 1) if n % bounds.multiple_of == 0]


def _roundness(size: int, bounds: Bounds) -> int:
    """Return the largest power of two that divides the number of groups, up to a bound."""
    groups = max(1, size // bounds.multiple_of)
    return min(groups & -groups, _DIVISIBLE_ENOUGH)
