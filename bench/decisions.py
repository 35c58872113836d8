"""Figures about the operator's decisions for a large job, without a cluster.

Each is the CPU time that one event takes: the store's, and that of all decisions that follow. Its
limit is what the same takes in a job of 100 members: a decision should not depend on the members
that have not changed.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable

from elasticjob_api.elasticjob import MAX_REPLICAS

from bench.figure import Result
from bench.job_events import RunningJob

_SAMPLES = 21
_SMALL = 100
_ADDED = 10
Event = Callable[[RunningJob, int], object]
"""Plays an event; the number says how often it was played before."""


def lost_member(job: RunningJob, number: int) -> None:
    """Let a pod fail, and the operator replace it."""
    job.lose_member(number)


def nothing_new(job: RunningJob, number: int) -> None:
    """Let the operator decide although there is nothing to do."""
    job.decide()


def plan(job: RunningJob, number: int) -> None:
    """Let the operator execute a ScalePlan of ten members more, or of ten fewer."""
    job.plan(f"p{number}", job.members + (0 if number % 2 else _ADDED))


def cpu_of(event: Event, members: int) -> Callable[[], Awaitable[Result]]:
    """Return the measurement of an event's CPU time in a job with this number of members."""

    async def measure() -> Result:
        return Result(_samples(event, members), _samples(event, _SMALL), "ms of CPU")

    return measure


def _samples(event: Event, members: int) -> list[float]:
    job = RunningJob(min(members, MAX_REPLICAS - _ADDED))
    gc.collect()
    samples = []
    for number in range(_SAMPLES):
        job.cost = 0.0
        event(job, number)
        samples.append(job.cost)
    return samples
