"""Defines what a pool shares: its rules, its jobs, what is left of it, and what it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob_api.elasticpool import Policy

Amounts = tuple[int, ...]
"""An amount of each of the pool's resources, in thousandths."""
_PLENTY = 1_000_000
"""More members than any role has."""
NEARLY_DONE_SECONDS = 120.0
"""A job with no more than this left is not changed: a change would cost more than it brings."""


@dataclass(frozen=True)
class Pool:
    """The rules of a pool, and what it has.

    Attributes:
        name: its name, for texts.
        policy: who gets members first.
        capacity: what all jobs together may hold, of each resource.
        reclaim_seconds: how long a job waits before others give members for it.
        cooldown_seconds: the least time between two changes of one job by the pool.
        suspends: whether jobs are suspended for one of higher priority that cannot start otherwise.
    """

    name: str
    policy: Policy
    capacity: Amounts
    reclaim_seconds: float = 0.0
    cooldown_seconds: float = 60.0
    suspends: bool = False


@dataclass(frozen=True)
class PooledJob:
    """One job of a pool. Sizes are numbers of members of its elastic role.

    Attributes:
        name: its name, unique in the pool.
        size: the members that it may have pods for, or will have after its plan; 0 if it waits.
        held: the members for which room is taken, those that are leaving included.
        desired: the size that the operator maintains, for which it needs no plan.
        requested: the size of its own plan that waits for the pool, or `desired`.
        wanted: the largest size that it should get.
        minimum: its smallest size.
        member: what one member takes.
        fixed: what its master and its other roles take while it has any pod.
        step: sizes above the minimum are multiples of it.
        priority: of its pods.
        weight: for Fair, its part in relation to others.
        since: when it was created, in seconds since the epoch.
        waits_since: since when it has had less than it should get; None if it has it.
        changed: when its size last changed, or it started.
        is_kept: the pool cannot change it now: a plan runs, or somebody else decides.
        may_grow_at: the pool does not enlarge it before, as the cluster had no nodes for it.
        ends_at: the end that it announced when it was first near; None if it was not yet.
        work: the samples that are left, by the least that it has said; None if it has not.
        rates: samples per second as seen at different sizes.
    """

    name: str
    size: int
    held: int
    desired: int
    requested: int
    wanted: int
    minimum: int
    member: Amounts
    fixed: Amounts
    step: int = 1
    priority: int = 0
    weight: float = 1.0
    since: float = 0.0
    waits_since: float | None = None
    changed: float = 0.0
    is_kept: bool = False
    may_grow_at: float = 0.0
    ends_at: float | None = None
    work: float | None = None
    rates: Mapping[int, float] = field(default_factory=dict)

    def is_nearly_done(self, now: float) -> bool:
        """Return whether its end is near, by what it announced when it was first near.

        So a job that says this for ever is protected once.
        """
        if self.ends_at is None:
            return False
        return abs(self.ends_at - now) <= NEARLY_DONE_SECONDS

    def rests(self, pool: Pool, now: float) -> bool:
        """Return whether its last change is too recent for another one."""
        return now < self.changed + pool.cooldown_seconds

    def least(self, pool: Pool, now: float) -> int:
        """Return the smallest size that it can be given now."""
        return min(self.size, self.minimum) if self.may_lose(pool, now) else self.size

    def may_lose(self, pool: Pool, now: float) -> bool:
        """Return whether it can lose members now."""
        return not (self.is_kept or self.rests(pool, now) or self.is_nearly_done(now))

    def most(self, pool: Pool, now: float) -> int:
        """Return the largest size that it can be given now."""
        if self.is_kept:
            return self.size
        if self.size == 0 or not (
            self.rests(pool, now) or now < self.may_grow_at or self.is_nearly_done(now)
        ):
            return max(self.wanted, self.minimum)
        return max(self.size, min(self.desired, self.wanted))


@dataclass(frozen=True)
class Resize:
    """A change of a job's size, which becomes a ScalePlan."""

    job: str
    size: int
    reason: str


@dataclass(frozen=True)
class Sharing:
    """The decision about a pool.

    Attributes:
        promised: the members for which each job may have pods.
        resizes: the plans to create.
        waiting: why each job that has less than it should get waits.
        suspended: the jobs whose pods must end, and why.
    """

    promised: Mapping[str, int]
    resizes: tuple[Resize, ...] = ()
    waiting: Mapping[str, str] = field(default_factory=dict)
    suspended: Mapping[str, str] = field(default_factory=dict)


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
