"""Plays a trace of jobs with the decisions of a pool, in simulated time.

A change of a job's size stops it for a time, and a member that leaves frees its room after the next
decision. Jobs learn their throughput by running, and report what is left of them as real ones do.
Placement is packed: only amounts are counted.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from elasticjob_operator.core.sharing.model import (
    NEARLY_DONE_SECONDS,
    Amounts,
    Pool,
    PooledJob,
    Room,
)
from elasticjob_operator.core.sharing.share import share

TICK = 30.0
"""Seconds between two decisions."""
CHANGE_SECONDS = 30.0


@dataclass
class SimulatedJob:
    """A job of a trace: its wish, its true curve, and its state.

    Attributes:
        name: its name, unique in the trace.
        arrives: when it is submitted, in seconds.
        asked: the size that its user asks for.
        rate: its true samples per second by size.
        samples: what is left of it.
        minimum: its smallest size.
        member: what one member takes.
        priority: of its pods.
        weight: for Fair, its part in relation to others.
        tells: whether it reports what is left.
        noise: the factor by which the throughput that it shows is off.
        change_seconds: how long its start, or a change of its size, stops it.
    """

    name: str
    arrives: float
    asked: int
    rate: Callable[[int], float]
    samples: float
    minimum: int = 1
    member: Amounts = (1,)
    priority: int = 0
    weight: float = 1.0
    tells: bool = True
    noise: float = 1.0
    change_seconds: float = CHANGE_SECONDS
    size: int = 0
    leaving: int = 0
    stopped_until: float = 0.0
    waits_since: float | None = None
    changed: float = -1e9
    ended: float = 0.0
    rates: dict[int, float] = field(default_factory=dict)
    least_said: float | None = None
    ends_at: float | None = None
    changes: int = 0
    ran: float = 0.0

    def __post_init__(self) -> None:
        self.desired = self.asked

    def advance(self, now: float) -> None:
        """Train until the next decision."""
        if not self.size:
            return
        self.ran += TICK
        begun = max(now, self.stopped_until)
        rate = self.rate(self.size)
        seconds = now + TICK - begun
        if seconds <= 0:
            return
        if self.samples <= rate * seconds:
            self.ended = begun + self.samples / rate
            return
        self.samples -= rate * seconds
        self.rates[self.size] = rate * self.noise
        if self.tells:
            said = self.samples
            self.least_said = said if self.least_said is None else min(said, self.least_said)
            left = self.samples / rate
            if left <= NEARLY_DONE_SECONDS and self.ends_at is None:
                self.ends_at = now + left

    def resize(self, size: int, now: float) -> None:
        """Give it another size, which stops it for a time."""
        if size == self.size:
            return
        if size < self.size:
            self.leaving = self.size - size
        self.changes += self.size > 0
        self.size = size
        self.stopped_until = now + self.change_seconds

    def fact(self, now: float) -> PooledJob:
        """Return what a pool knows of it."""
        return PooledJob(
            name=self.name,
            size=self.size,
            held=self.size + self.leaving,
            desired=self.desired,
            requested=self.desired,
            wanted=self.asked,
            minimum=self.minimum,
            member=self.member,
            fixed=(0,) * len(self.member),
            priority=self.priority,
            weight=self.weight,
            since=self.arrives,
            waits_since=self.waits_since,
            changed=self.changed,
            is_kept=now < self.stopped_until,
            ends_at=self.ends_at,
            work=self.least_said if self.rates else None,
            rates=self.rates,
        )


Decide = Callable[[Sequence[SimulatedJob], float], None]


def first_come(capacity: Amounts) -> Decide:
    """Return the peer without elasticity.

    Jobs start with the sizes that were asked for in the order of arrival; a later one that fits may
    start before.
    """

    def decide(jobs: Sequence[SimulatedJob], now: float) -> None:
        free = Room(capacity)
        for job in jobs:
            free.take(job.member, job.size)
        for job in sorted(jobs, key=lambda each: each.arrives):
            if not job.size and free.fits(job.member) >= job.asked:
                job.resize(job.asked, now)
                free.take(job.member, job.asked)

    return decide


def pooled(pool: Pool) -> Decide:
    """Return the decisions of a pool."""

    def decide(jobs: Sequence[SimulatedJob], now: float) -> None:
        sharing = share(pool, [job.fact(now) for job in jobs], now)
        by_name = {job.name: job for job in jobs}
        for resize in sharing.resizes:
            job = by_name[resize.job]
            job.desired = resize.size
            job.resize(resize.size, now)
            job.changed = now
        held = Room(pool.capacity)
        for job in jobs:
            if not job.size:
                job.changed = now
            # What a started job still lacks comes without a plan, and begins no cooldown.
            job.resize(sharing.promised[job.name], now)
            waits = job.name in sharing.waiting
            job.waits_since = (job.waits_since or now) if waits else None
            held.take(job.member, job.size + job.leaving)
        assert not any(held.overdrawn)

    return decide


@dataclass(frozen=True)
class Outcome:
    """What became of the jobs.

    Attributes:
        seconds: from arrival to end, of each job that has ended, in their order.
        changes_per_hour: changes of a running job's size, per hour of a job.
        unfinished: how many jobs have not ended in the longest time.
    """

    seconds: Mapping[str, float]
    changes_per_hour: float
    unfinished: int

    @property
    def mean(self) -> float:
        """The mean completion time; infinite if not all have ended."""
        return math.inf if self.unfinished else math.fsum(self.seconds.values()) / len(self.seconds)

    @property
    def percentile(self) -> float:
        """The 99th percentile of the completion times."""
        times = sorted(self.seconds.values())
        return times[math.ceil(0.99 * len(times)) - 1]


def play(jobs: Sequence[SimulatedJob], decide: Decide, longest: float) -> Outcome:
    """Play jobs, whose state this changes, to their end, or for the longest time in seconds."""
    arriving = deque(sorted(jobs, key=lambda job: job.arrives))
    present: list[SimulatedJob] = []
    now = 0.0
    while (present or arriving) and now < longest:
        if not present:
            now = max(now, math.ceil(arriving[0].arrives / TICK) * TICK)
        while arriving and arriving[0].arrives <= now:
            present.append(arriving.popleft())
        decide(present, now)
        for job in present:
            job.advance(now)
            job.leaving = 0
        present = [job for job in present if not job.ended]
        now += TICK
    hours = sum(job.ran for job in jobs) / 3600
    return Outcome(
        {job.name: job.ended - job.arrives for job in jobs if job.ended},
        sum(job.changes for job in jobs) / max(hours, TICK / 3600),
        len(present) + len(arriving),
    )
