"""The policies of a pool: which size each job should have.

Each fills the pool from nothing. First come the members that no job can lose now: the minimum of
those that run, or their size if they cannot be changed. What is left goes to jobs by the policy. A
job never gets more than it should, and none starts below its minimum. While one waits for its
start, none of equal or lower rank starts, so that a large job's turn comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

from elasticjob_operator.core.sharing.curves import speed, work_left
from elasticjob_operator.core.sharing.model import Pool, PooledJob, Room, next_size, stepped, total

_FLOOR = 0.5
"""For Throughput, the part of an equal share that a job has whatever others gain."""
_KEPT = 1.5
"""A member of a job counts as much more as one that it does not have, since a move costs both jobs.
So small differences move nobody, and what was moved stays.
"""
_KEPT_BY_SHORT = 3.0
"""The same for Throughput, whose parts change whenever a job comes, ends or passes another one."""
_LEAST_EFFICIENCY = 0.2
"""For Throughput, another member adds at least this part of what the present ones have on average.
"""


def fair_sizes(pool: Pool, jobs: Sequence[PooledJob], now: float) -> dict[str, int]:
    """Return the size that each job should have; 0 for one that waits for its start."""
    filling = _Filling(pool, jobs, now)
    _POLICIES[pool.policy](filling)
    return filling.sizes


class _Filling:
    """A pool that is being filled."""

    def __init__(self, pool: Pool, jobs: Sequence[PooledJob], now: float) -> None:
        self.pool = pool
        self.now = now
        self.capacity = pool.capacity
        self.jobs = sorted(jobs, key=lambda job: (job.since, job.name))
        self.most = {job.name: job.most(pool, now) for job in jobs}
        self.sizes = {job.name: job.least(pool, now) for job in jobs}
        self.room = Room(pool.capacity)
        self.is_blocked = False
        self._parts = {job.name: self._part(job) for job in jobs}
        for job in jobs:
            self.room.take(total(job, self.sizes[job.name]))

    def start(self, jobs: Iterable[PooledJob]) -> None:
        """Give the waiting ones their minimum in this order, until it does not fit."""
        for job in jobs:
            if self.is_blocked or self.sizes[job.name] or job.is_kept:
                continue
            if not Room(self.capacity).fits(total(job, job.minimum)):
                continue  # it never fits, and others must not wait for it
            if self.room.fits(amounts := total(job, job.minimum)) or self._suspend_for(job):
                self.room.take(amounts)
                self.sizes[job.name] = job.minimum
            else:
                self.is_blocked = True

    def _suspend_for(self, job: PooledJob) -> bool:
        """Take everything from jobs of lower priority, if a job can start then: the lowest first.

        Not from more than necessary.
        """
        if not self.pool.suspends:
            return False
        amounts = total(job, job.minimum)
        lower = [
            other
            for other in self.jobs
            if other.priority < job.priority
            and self.sizes[other.name]
            and other.may_lose(self.pool, self.now)
        ]
        room = Room(tuple(self.room.free))
        taken = []
        for other in sorted(lower, key=lambda each: (each.priority, -each.since, each.name)):
            if not room.fits(amounts):
                room.take(total(other, self.sizes[other.name]), -1)
                taken.append(other)
        if not room.fits(amounts):
            return False
        for other in reversed(taken):
            held = total(other, self.sizes[other.name])
            room.take(held)
            if not room.fits(amounts):
                room.take(held, -1)
                self.sizes[other.name] = 0
        self.room = room
        return True

    def keep(self, jobs: Iterable[PooledJob]) -> None:
        """Leave those that run what they have, in this order, as far as it fits."""
        for job in jobs:
            size = self.sizes[job.name]
            if size:
                more = self.room.fits(job.member)
                most = min(job.size, self.most[job.name], size + more)
                self._set(job, most if most == job.size else stepped(job, size, most))

    def spread(
        self, jobs: Iterable[PooledJob], rank: Callable[[PooledJob, int, int], float | None]
    ) -> None:
        """Give one step at a time to the job of the lowest rank, as long as any fits.

        `rank` returns the rank of a job's step from one size to the next; None if it gets no more.
        """
        heap: list[tuple[float, int, PooledJob]] = []

        def add(order: int, job: PooledJob) -> None:
            size = self.sizes[job.name]
            following = next_size(job, size)
            if size and following <= self.most[job.name]:
                found = rank(job, size, following)
                if found is not None:
                    heapq.heappush(heap, (found, order, job))

        for order, job in enumerate(jobs):
            add(order, job)
        while heap:
            _, order, job = heapq.heappop(heap)
            size = self.sizes[job.name]
            following = next_size(job, size)
            if self.room.fits(job.member) >= following - size:
                self._set(job, following)
                add(order, job)

    def part(self, job: PooledJob, size: int) -> float:
        """Return the part of the pool that a job takes with a size: of its scarcest resource."""
        return size * self._parts[job.name]

    def _part(self, job: PooledJob) -> float:
        pairs = zip(job.member, self.capacity, strict=True)
        return max((each / most for each, most in pairs if most > 0), default=0.0)

    def _set(self, job: PooledJob, size: int) -> None:
        self.room.take(job.member, size - self.sizes[job.name])
        self.sizes[job.name] = size


def _by_priority(filling: _Filling) -> None:
    """From the highest priority down, everything that they want.

    Those of one priority keep what they have, then others of it start, and what is left is shared.
    """
    for priority in sorted({job.priority for job in filling.jobs}, reverse=True):
        level = [job for job in filling.jobs if job.priority == priority]
        filling.keep(level)
        filling.start(level)
        filling.spread(level, lambda job, size, _: filling.part(job, size))


def _fairly(filling: _Filling) -> None:
    """Everybody's minimum, and then equal parts of the pool by weight."""
    filling.start(filling.jobs)

    def rank(job: PooledJob, size: int, following: int) -> float:
        return filling.part(job, size) / job.weight / _attachment(job, following)

    filling.spread(filling.jobs, rank)


def _for_throughput(filling: _Filling) -> None:
    """Everybody's minimum and a part of an equal share; of the rest, most where jobs end soonest.

    From the job with most left to the one with least, parts grow as 1, 3, 5, 7 and so on. So jobs
    whose throughput grows with the root of their size have the least mean completion time
    ("heSRPT", Berg, Vesilo and Harchol-Balter 2020). What a job says of its end counts only by its
    place among others: the first of many has about twice an equal part.
    """
    filling.start(filling.jobs)
    running = [job for job in filling.jobs if filling.sizes[job.name]]
    floor = _FLOOR / max(len(running), 1)

    def below_floor(job: PooledJob, size: int, following: int) -> float | None:
        part = filling.part(job, following)
        return part if part <= floor else None

    filling.spread(running, below_floor)
    rates = {job.name: speed(job.rates) for job in running}

    def seconds_left(job: PooledJob) -> tuple[float, float]:
        """Return them at the job's minimum; of equal ones, the younger job seems longer.

        Jobs that were created together must not change places by an error of rounding.
        """
        return round(work_left(job, filling.now) / rates[job.name](job.minimum), 3), job.since

    longest_first = sorted(running, key=seconds_left, reverse=True)
    parts = {job.name: 2 * place + 1 for place, job in enumerate(longest_first)}

    def rank(job: PooledJob, size: int, following: int) -> float | None:
        rate = rates[job.name]
        efficiency = (rate(following) / rate(size) - 1) * size / (following - size)
        if efficiency < _LEAST_EFFICIENCY:
            return None
        part = filling.part(job, following) / parts[job.name]
        return part / efficiency / _attachment(job, following, _KEPT_BY_SHORT)

    filling.spread(running, rank)


def _attachment(job: PooledJob, size: int, kept: float = _KEPT) -> float:
    """Return how much more a member must bring elsewhere to be taken from a job."""
    return kept if size <= job.size else 1.0


_POLICIES: dict[str, Callable[[_Filling], None]] = {
    "Priority": _by_priority,
    "Fair": _fairly,
    "Throughput": _for_throughput,
}
