"""A pool in memory: jobs take the time that real ones take to shrink and to start their pods.

The decisions are the operator's own. Between two of them the operator may be killed, which forgets
what it has promised, at any write.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from elasticjob_operator.core.sharing.curves import speed
from elasticjob_operator.core.sharing.model import Amounts, Pool, PooledJob, Sharing
from elasticjob_operator.core.sharing.share import promised_at_start, share

DRAIN_SECONDS = 20
POWER = 0.8


@dataclass
class Job:
    """A job: the size that it has by its status, its pods, and the plan that runs."""

    name: str
    desired: int
    minimum: int = 1
    wanted: int | None = None
    member: Amounts = (1000,)
    fixed: Amounts = (0,)
    priority: int = 0
    since: float = 0.0
    pods: int = 0
    leaving: list[float] = field(default_factory=list)
    changed: float = -1e6
    plans: list[tuple[float, int]] = field(default_factory=list)
    rates: dict[int, float] = field(default_factory=dict)
    left: float | None = None
    least_said: float = float("inf")
    work: float | None = None
    """Seconds that it still takes with one member, if it tells how long it takes."""
    ends_at: float | None = None
    weight: float = 1.0
    step: int = 1
    waits_since: float | None = None
    is_suspended: bool = False
    has_ended: bool = False

    @property
    def held(self) -> Amounts:
        """What its pods take."""
        number = self.pods + len(self.leaving)
        taken = (fixed * (number > 0) + each * number for fixed, each in self._pairs)
        return tuple(taken)

    @property
    def _pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.fixed, self.member, strict=True))


class World:
    """The pool, its jobs and the operator's memory."""

    def __init__(self, pool: Pool, jobs: list[Job]) -> None:
        self.pool = pool
        self.jobs = {job.name: job for job in jobs}
        self.now = 1000.0
        self.promised: dict[str, int] = {}
        self.is_fresh = True
        self.plans = 0

    def facts(self) -> list[PooledJob]:
        """Return the jobs as the operator sees them."""
        live = [job for job in self.jobs.values() if not job.has_ended and job.since <= self.now]
        found = [self._fact(job) for job in live]
        if self.is_fresh:
            promised = promised_at_start(self.pool, found)
            self.promised.update(promised)
            found = [self._fact(job) for job in live]
            self.is_fresh = False
        return found

    def _fact(self, job: Job) -> PooledJob:
        pods = job.pods + len(job.leaving)
        promised = min(self.promised.get(job.name, pods), job.desired)
        size = min(job.desired, promised)
        if job.plans:
            size = min(size, job.plans[-1][1])
        return PooledJob(
            name=job.name,
            size=size,
            held=max(pods, promised),
            desired=job.desired,
            requested=job.desired,
            wanted=job.wanted or job.desired,
            minimum=job.minimum,
            member=job.member,
            fixed=job.fixed,
            step=job.step,
            priority=job.priority,
            weight=job.weight,
            since=job.since,
            waits_since=job.waits_since,
            changed=job.changed,
            is_kept=bool(
                job.plans or (job.leaving and not job.is_suspended) or (promised and not pods)
            ),
            ends_at=job.ends_at,
            work=self._samples_left(job, max(size, 1)),
            rates=job.rates,
        )

    def _samples_left(self, job: Job, size: int) -> float | None:
        """Return the least that a job has said so far, by its seconds left at its size."""
        rate = speed(job.rates)
        if job.work is not None:
            return job.work * rate(1)
        if job.left is not None:
            job.least_said = min(job.least_said, job.left * rate(size))
            return job.least_said
        return None

    def tick(self, *, killed_after: int | None = None) -> Sharing:
        """Decide and carry out; after `killed_after` writes the operator is a new one."""
        sharing = share(self.pool, self.facts(), self.now)
        for number, resize in enumerate(sharing.resizes):
            if killed_after is not None and number >= killed_after:
                break
            job = self.jobs[resize.job]
            if resize.size < job.desired:
                job.plans.append((self.now, resize.size))
            else:
                job.desired = resize.size
                job.changed = self.now
            self.plans += 1
        if killed_after is not None:
            self.promised.clear()
            self.is_fresh = True
            for job in self.jobs.values():
                job.is_suspended = False
            return sharing
        self.promised = dict(sharing.promised)
        for name, job in self.jobs.items():
            waits = name in sharing.waiting
            job.waits_since = (job.waits_since or self.now) if waits else None
            may_run = bool(self.promised.get(name))
            job.is_suspended = not may_run and (job.is_suspended or name in sharing.suspended)
        return sharing

    def advance(self, seconds: float = 5.0) -> None:
        """Let time pass: pods start if they may, and leave when they have drained."""
        self.now += seconds
        for job in self.jobs.values():
            if job.has_ended:
                job.pods = 0
                job.leaving.clear()
                self.promised.pop(job.name, None)
                continue
            while job.is_suspended and job.pods:
                job.pods -= 1
                job.leaving.append(self.now + DRAIN_SECONDS)
            for _, size in job.plans:
                while job.pods > size:
                    job.pods -= 1
                    job.leaving.append(self.now + DRAIN_SECONDS)
                job.desired = size
                job.changed = self.now
            job.plans.clear()
            if job.work is not None:
                job.work = max(1.0, job.work - seconds * job.pods**POWER)
            before = len(job.leaving)
            job.leaving = [due for due in job.leaving if due > self.now]
            if before and not job.leaving:
                job.changed = self.now
            if job.since <= self.now and not self.is_fresh:
                may = min(job.desired, self.promised.get(job.name, 0))
                if may > job.pods:
                    job.changed = self.now
                job.pods = max(job.pods, may - len(job.leaving))

    def run(self, seconds: float) -> list[Sharing]:
        """Decide every five seconds for some time."""
        decisions = []
        end = self.now + seconds
        while self.now < end:
            decisions.append(self.tick())
            self.check()
            self.advance()
            self.check()
        return decisions

    def check(self) -> None:
        """Check that no more is held than there is, and no job is below its minimum."""
        for position, most in enumerate(self.pool.capacity):
            held = sum(job.held[position] for job in self.jobs.values())
            assert held <= most, {job.name: (job.pods, job.leaving) for job in self.jobs.values()}
        for job in self.jobs.values():
            assert job.pods == 0 or job.has_ended or job.pods >= min(job.minimum, job.desired)

    def pods(self) -> dict[str, int]:
        """Return the pods of each job, without those that are leaving."""
        return {name: job.pods for name, job in self.jobs.items() if not job.has_ended}

    def with_capacity(self, *capacity: int) -> None:
        """Change what the pool has."""
        self.pool = dataclasses.replace(self.pool, capacity=capacity)
