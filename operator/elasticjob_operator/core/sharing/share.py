"""Decides how a pool is shared now: which jobs shrink, and which get members, for whom and why.

Room is promised only when it is free: the pods that leave have ended before others get theirs. So
the jobs of a pool never hold more than there is, whenever the operator is killed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from elasticjob_operator.core.sharing.curves import loss
from elasticjob_operator.core.sharing.model import (
    Amounts,
    Pool,
    PooledJob,
    Resize,
    Room,
    Sharing,
    members_for,
    needed,
    stepped,
    total,
)
from elasticjob_operator.core.sharing.policies import fair_sizes

_WORTH = 0.2
"""A job that runs waits for more members only if it should get this part of its size more."""
_MOST_NAMED = 3


def share(pool: Pool, jobs: Sequence[PooledJob], now: float) -> Sharing:
    """Return what to do now. The same state, decided again, changes nothing more.

    Args:
        pool: its rules, and what it has.
        jobs: all its jobs that have not ended.
        now: seconds since the epoch.
    """
    state = _State(pool, jobs, now)
    if not any(pool.capacity):  # not known: nothing starts, and nothing is taken
        reasons = {job.name: _why_waiting(pool, job, job.minimum) for job in jobs if not job.size}
        return Sharing(state.promised, waiting=reasons)
    # 1. Which size should each job have, of those that it can be given now?
    fair = fair_sizes(pool, jobs, now)
    fair |= {job.name: _at_start(job, fair[job.name]) for job in jobs if not job.size}
    # 2. Who waits for how much, in which order?
    waiting = _waiting(state, fair)
    # 3. Who gives members for them, as far as the room that is free or being freed is too little?
    _take_back(state, fair, waiting)
    # 4. Who gets the room that is free?
    _give(state, fair, waiting)
    return Sharing(state.promised, tuple(state.resizes), state.reasons, state.suspended)


def _at_start(job: PooledJob, size: int) -> int:
    """Return the size of a job that starts: it needs no plan for it."""
    return min(size, max(job.desired, job.minimum))


@dataclass
class _State:
    """The pool while it is decided about."""

    pool: Pool
    jobs: Sequence[PooledJob]
    now: float
    promised: dict[str, int] = field(default_factory=dict)
    resizes: list[Resize] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    suspended: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.promised = {job.name: job.size for job in self.jobs}
        self.free = Room(self.pool.capacity)
        self.soon = Room(self.pool.capacity)
        for job in self.jobs:
            self.free.take(total(job, job.held))
            self.soon.take(total(job, job.size))

    @property
    def is_being_freed(self) -> bool:
        """Whether members are leaving, or are to leave."""
        return self.free.free != self.soon.free


def _waiting(state: _State, fair: dict[str, int]) -> list[PooledJob]:
    """Return the jobs that should get members: by priority, those that start before others."""
    found = [
        job
        for job in state.jobs
        if fair[job.name] > job.size and (_is_worth_it(job, fair[job.name]))
    ]
    by_priority = state.pool.policy == "Priority"
    return sorted(
        found,
        key=lambda job: (
            -job.priority if by_priority else 0,
            job.size > 0,
            job.size / fair[job.name],
            job.since,
            job.name,
        ),
    )


def _is_worth_it(job: PooledJob, size: int) -> bool:
    return job.size == 0 or size <= job.desired or size - job.size >= _WORTH * job.size


def _take_back(state: _State, fair: dict[str, int], waiting: Sequence[PooledJob]) -> None:
    """Shrink jobs that have more than they should, as far as others wait for it long enough."""
    pool = state.pool
    givers = [job for job in state.jobs if job.size > fair[job.name]]
    givers.sort(key=lambda job: _first_to_give(pool, job, fair[job.name]))
    due = [job for job in waiting if _has_waited(state, job)]
    missing = _missing(state, fair, due)
    for job in givers:
        if not any(missing):
            return
        size = 0
        if fair[job.name] or not due:
            size = _smaller(job, fair[job.name] or min(job.size, job.minimum), missing)
        if size == job.size:
            continue
        freed = needed(job, size, job.size)
        missing = tuple(max(0, a - b) for a, b in zip(missing, freed, strict=True))
        state.soon.take(freed, -1)
        state.promised[job.name] = size
        if size:
            state.resizes.append(Resize(job.name, size, _why_given(pool, job, size, due, fair)))
        else:
            state.suspended[job.name] = f"for {_who_all_wait(pool, due, fair)}"


def _first_to_give(pool: Pool, job: PooledJob, fair: int) -> tuple[float, float, float, str]:
    by_priority = pool.policy == "Priority"
    return (job.priority if by_priority else 0, fair / job.size, -job.since, job.name)


def _missing(state: _State, fair: dict[str, int], due: Sequence[PooledJob]) -> Amounts:
    """Return what is needed beyond what is free, or will be when those that leave have ended."""
    wanted = Room((0,) * len(state.pool.capacity))
    for job in due:
        wanted.take(needed(job, job.size, fair[job.name]), -1)
    return tuple(
        max(0, amount - free) for amount, free in zip(wanted.free, state.soon.free, strict=True)
    )


def _has_waited(state: _State, job: PooledJob) -> bool:
    since = state.now if job.waits_since is None else job.waits_since
    return state.now >= since + state.pool.reclaim_seconds


def _smaller(job: PooledJob, least: int, missing: Amounts) -> int:
    """Return the size with which a job frees no more than is missing; at least `least`."""
    gives = members_for(missing, job.member)
    return stepped(job, least, job.size - gives) if gives > 0 else job.size


def _give(state: _State, fair: dict[str, int], waiting: Sequence[PooledJob]) -> None:
    """Promise what is free. Who waits for room that is being freed reserves what is free.

    So members come at once, in one change, and nobody else takes them.
    """
    is_being_freed = state.is_being_freed  # before what is given here counts as taken
    for job in waiting:
        size = fair[job.name]
        amounts = needed(job, job.size, size)
        if not state.free.fits(amounts):
            if not is_being_freed:
                size = _largest_now(state, job, size)
                amounts = needed(job, job.size, size)
            elif job.size < size:
                state.free.take(amounts)
                state.free.free = [max(0, each) for each in state.free.free]
        if size > state.promised[job.name] and state.free.fits(amounts):
            state.free.take(amounts)
            state.promised[job.name] = size
            if size > job.desired and size != job.requested and job.size:
                reason = _why_grown(state.pool, job, size)
                state.resizes.append(Resize(job.name, size, reason))
        if state.promised[job.name] < fair[job.name]:
            state.reasons[job.name] = _why_waiting(state.pool, job, fair[job.name])
    for job in state.jobs:
        if not state.promised[job.name]:
            state.reasons.setdefault(job.name, _why_waiting(state.pool, job, job.minimum))


def _largest_now(state: _State, job: PooledJob, most: int) -> int:
    """Return the largest size for which there is room now, or the present one."""
    if job.size == 0:
        without_members = Room(tuple(state.free.free))
        without_members.take(job.fixed)
        least = job.minimum
        fitting = without_members.fits(job.member)
        return stepped(job, least, min(most, fitting)) if fitting >= least else 0
    size = stepped(job, job.size, min(most, job.size + state.free.fits(job.member)))
    return size if _is_worth_it(job, size) else job.size


def _why_given(
    pool: Pool, job: PooledJob, size: int, waiting: Sequence[PooledJob], fair: Mapping[str, int]
) -> str:
    """Return the reason of a plan that shrinks a job."""
    cost = f"{job.name} loses about {loss(job, size):.0%} of its throughput"
    if not waiting:
        return f"ElasticPool {pool.name} holds more than it has; {cost}"
    who = _who_all_wait(pool, waiting, fair)
    return f"ElasticPool {pool.name} is full, and {who} waits; {cost}"


def _who_all_wait(pool: Pool, waiting: Sequence[PooledJob], fair: Mapping[str, int]) -> str:
    named = [_who_waits(pool, each, fair[each.name]) for each in waiting[:_MOST_NAMED]]
    more = len(waiting) - len(named)
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _who_waits(pool: Pool, job: PooledJob, size: int) -> str:
    rank = f", priority {job.priority}" if pool.policy == "Priority" else ""
    return f"{job.name} ({job.size} of {size} members{rank})"


def _why_grown(pool: Pool, job: PooledJob, size: int) -> str:
    """Return the reason of a plan that enlarges a job."""
    gain = -loss(job, size)
    return (
        f"ElasticPool {pool.name} has room for {size - job.size} more members of {job.name}, "
        f"about {gain:.0%} more throughput"
    )


def _why_waiting(pool: Pool, job: PooledJob, size: int) -> str:
    """Return why a job has less than it should get."""
    if job.size:
        return f"has {job.size} of {size} members that it should get"
    return f"waits for room for {size} members in ElasticPool {pool.name}"


def promised_at_start(pool: Pool, jobs: Sequence[PooledJob]) -> Mapping[str, int]:
    """Return the members for which each job may have pods, from what it has now.

    Jobs that run keep their size, so that lost pods come back. If that is more than there is, the
    last operator had promised some of them less, and each keeps the pods that it has.
    """
    running = [job for job in jobs if job.held]
    room = Room(pool.capacity)
    for job in running:
        room.take(total(job, max(job.held, job.desired)))
    fits = not any(room.overdrawn)
    return {job.name: max(job.held, job.desired) if fits else job.held for job in running}
