"""Says who waits in a pool and for how much, and what a plan of the pool costs whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elasticjob_operator.core.sharing.curves import loss
from elasticjob_operator.core.sharing.model import Pool, PooledJob

_MOST_NAMED = 3


def why_given(
    pool: Pool, job: PooledJob, size: int, waiting: Sequence[PooledJob], fair: Mapping[str, int]
) -> str:
    """Return the reason of a plan that shrinks a job."""
    cost = f"{job.name} loses about {loss(job, size):.0%} of its throughput"
    if not waiting:
        return f"ElasticPool {pool.name} holds more than it has; {cost}"
    named = [_who_waits(pool, each, fair[each.name]) for each in waiting[:_MOST_NAMED]]
    more = len(waiting) - len(named)
    others = f" and {more} more" if more > 0 else ""
    return f"ElasticPool {pool.name} is full, and {', '.join(named)}{others} waits; {cost}"


def _who_waits(pool: Pool, job: PooledJob, size: int) -> str:
    rank = f", priority {job.priority}" if pool.policy == "Priority" else ""
    return f"{job.name} ({job.size} of {size} members{rank})"


def why_grown(pool: Pool, job: PooledJob, size: int) -> str:
    """Return the reason of a plan that enlarges a job."""
    gain = -loss(job, size)
    return (
        f"ElasticPool {pool.name} has room for {size - job.size} more members of {job.name}, "
        f"about {gain:.0%} more throughput"
    )


def why_waiting(pool: Pool, job: PooledJob, size: int) -> str:
    """Return why a job has less than it should get."""
    if job.size:
        return f"has {job.size} of {size} members that it should get"
    return f"waits for room for {size} members in ElasticPool {pool.name}"
