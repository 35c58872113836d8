"""Predicts the throughput of a job at other sizes from what was seen of it.

Nobody's word is taken: a rate counts at the size at which it was seen. Between and beyond the seen
sizes the throughput grows by a power of the size, never faster than the size itself. So a job that
exaggerates gains at most what linear scaling would.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise

from elasticjob_operator.core.sharing.model import PooledJob

_UNKNOWN = 0.8
"""The power for a job that was seen at one size, or none: typical of data-parallel training."""
_DECLINE = 0.9
"""Beyond the largest seen size, the power is this part of the last known one."""
_SHORTEST = 60.0
_LEAST_PART = 0.05
"""A job has at least this part of its age left, whatever it says."""
_UNKNOWN_SECONDS = 600.0


def speed(rates: Mapping[int, float]) -> Callable[[int], float]:
    """Return the throughput by size; for a job without rates, in units of one member."""
    points = sorted((size, rate) for size, rate in rates.items() if size > 0 and rate > 0)
    if not points:
        return lambda size: float(size**_UNKNOWN)
    powers = [_power(small, large) for small, large in pairwise(points)]
    first = powers[0] if powers else _UNKNOWN
    last = powers[-1] * _DECLINE if powers else _UNKNOWN

    def rate(size: int) -> float:
        known = points[0]
        power = first
        for position, point in enumerate(points):
            if point[0] > size:
                break
            known = point
            power = powers[position] if position < len(powers) else last
        return float(known[1] * (size / known[0]) ** power)

    return rate


def _power(small: tuple[int, float], large: tuple[int, float]) -> float:
    power = math.log(large[1] / small[1]) / math.log(large[0] / small[0])
    return min(max(power, 0.0), 1.0)


def work_left(job: PooledJob, now: float) -> float:
    """Return the samples that a job probably needs, whatever its present size.

    A job that does not say, or that should have ended by what it said, probably needs as long as it
    has run: so it is with lengths of jobs in shared clusters.
    """
    age = max(now - job.since, 0.0)
    slowest = speed(job.rates)(job.minimum)
    is_late = job.ends_at is not None and now > job.ends_at + 0.5 * age
    if job.work is None or is_late:
        return max(age, _UNKNOWN_SECONDS) * slowest
    return max(job.work, max(age * _LEAST_PART, _SHORTEST) * slowest)


def loss(job: PooledJob, size: int) -> float:
    """Return which part of its throughput a job loses with another size."""
    rate = speed(job.rates)
    return 1 - rate(size) / rate(job.size) if job.size else 0.0
