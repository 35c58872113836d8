"""Counts what is left of a pool's resources while members are given to its jobs."""

from __future__ import annotations

from elasticjob_operator.core.sharing.model import Amounts, PooledJob

_PLENTY = 1_000_000
"""More members than any role has."""


class Room:
    """What is free of each resource; below 0 where more is held than there is."""

    def __init__(self, free: Amounts) -> None:
        self.free = list(free)

    def take(self, amounts: Amounts, times: int = 1) -> None:
        """Take an amount some times; a negative number gives it back."""
        free = self.free
        for position, amount in enumerate(amounts):
            free[position] -= amount * times

    def fits(self, amounts: Amounts) -> int:
        """Return how many times an amount fits."""
        most = _PLENTY
        for free, amount in zip(self.free, amounts, strict=True):
            if amount > 0 and free < amount * most:
                most = max(free // amount, 0)
        return most

    @property
    def overdrawn(self) -> Amounts:
        """What is held beyond what there is."""
        return tuple(max(0, -free) for free in self.free)


def total(job: PooledJob, size: int) -> Amounts:
    """Return what a job takes with this size; nothing without members."""
    if size <= 0:
        return (0,) * len(job.member)
    return tuple(fixed + each * size for fixed, each in zip(job.fixed, job.member, strict=True))


def needed(job: PooledJob, before: int, after: int) -> Amounts:
    """Return what a job needs to grow from one size to another one."""
    pairs = zip(total(job, before), total(job, after), strict=True)
    return tuple(large - small for small, large in pairs)


def next_size(job: PooledJob, size: int) -> int:
    """Return the size that follows in the job's steps."""
    return (size // job.step + 1) * job.step


def stepped(job: PooledJob, least: int, most: int) -> int:
    """Return the largest size in the job's steps from `least` to `most`; `least` if none is."""
    return max(least, most // job.step * job.step) if most > least else least


def members_for(amounts: Amounts, member: Amounts) -> int:
    """Return how many members free these amounts, as far as members have them."""
    return max(
        (-(-amount // each) for amount, each in zip(amounts, member, strict=True) if each > 0),
        default=0,
    )
