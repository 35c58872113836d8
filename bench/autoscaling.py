"""Figures about the auto-scaler in simulated jobs.

How good the size is at the end, what it cost on the way, and harm. The worlds are drawn at random,
of every kind, and the master's real auto-scaler runs in each of them for four hours.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import cache
from statistics import fmean

from bench.autoscale_job import Outcome, SimulatedJob
from bench.autoscale_objectives import OBJECTIVES, Met
from bench.autoscale_worlds import KINDS, UNSEEN, drawn
from bench.figure import Result

_WORLDS = 32
"""Of each kind."""
_OBJECTIVE_WORLDS = 12
"""Of each kind, for each of the other objectives."""
_GOAL = 0.95
_MOST_PLANS = 10


@cache
def outcomes() -> tuple[tuple[str, Outcome], ...]:
    """Return how the jobs went, each with its kind of world; all figures look at the same ones."""
    return tuple(
        (kind, SimulatedJob(drawn(kind, number)).run())
        for kind in KINDS
        for number in range(UNSEEN, UNSEEN + _WORLDS)
    )


def _figure(
    name: str, unit: str, value: Callable[[list[Outcome]], float]
) -> Callable[[], Awaitable[Result]]:
    """Return what measures a figure over all worlds, and prints that of every kind to stderr."""

    async def measure() -> Result:
        found = outcomes()
        each = {
            kind: value([outcome for other, outcome in found if other == kind]) for kind in KINDS
        }
        sys.stderr.write(
            f"{name}: {', '.join(f'{kind} {figure:.3f}' for kind, figure in each.items())}\n"
        )
        total = value([outcome for _, outcome in found])
        return Result(value=total, unit=unit, limit=1.0, ratio=total, n=len(found))

    return measure


end_ratio = _figure(
    "throughput at the end", "of best", lambda jobs: fmean(job.ratio for job in jobs)
)
ends_low = _figure(
    "ends below 0.95", "of jobs", lambda jobs: fmean(job.ratio < _GOAL for job in jobs)
)
first_hour = _figure(
    "samples in the first hour",
    "of an oracle's",
    lambda jobs: fmean(job.first_hour for job in jobs),
)
four_hours = _figure(
    "samples in four hours", "of an oracle's", lambda jobs: fmean(job.whole for job in jobs)
)
too_many = _figure(
    "half as many members too many",
    "of jobs",
    lambda jobs: fmean(job.excess > 1 / 2 for job in jobs),
)
harm = _figure(
    "more than 10 plans for one question, or more than 3 % slower than a size that was tried",
    "of jobs",
    lambda jobs: fmean(job.most_plans > _MOST_PLANS or job.below_measured > 0.03 for job in jobs),
)


@cache
def met(objective: str) -> tuple[tuple[str, Met], ...]:
    """Return how well an objective was met, each with its kind of world."""
    run = OBJECTIVES[objective]
    return tuple(
        (kind, run(drawn(kind, number)))
        for kind in KINDS
        for number in range(UNSEEN, UNSEEN + _OBJECTIVE_WORLDS)
    )


def _objective_figure(
    name: str, objective: str, unit: str, value: Callable[[list[Met]], float]
) -> Callable[[], Awaitable[Result]]:
    """Return what measures a figure of an objective, like `_figure`."""

    async def measure() -> Result:
        found = met(objective)
        each = {kind: value([job for other, job in found if other == kind]) for kind in KINDS}
        sys.stderr.write(
            f"{name}: {', '.join(f'{kind} {figure:.3f}' for kind, figure in each.items())}\n"
        )
        total = value([job for _, job in found])
        return Result(value=total, unit=unit, limit=1.0, ratio=total, n=len(found))

    return measure


throughput_ratio = _objective_figure(
    "objective Throughput: throughput at the end",
    "Throughput",
    "of most",
    lambda jobs: fmean(job.ratio for job in jobs),
)
deadline_met = _objective_figure(
    "objective Deadline: ended in time",
    "Deadline",
    "of jobs",
    lambda jobs: fmean(job.ratio for job in jobs),
)
deadline_members = _objective_figure(
    "objective Deadline: members",
    "Deadline",
    "of fewest",
    lambda jobs: fmean(job.members for job in jobs),
)
cost_ratio = _objective_figure(
    "objective Cost: least cost of a sample",
    "Cost",
    "of that at the end",
    lambda jobs: fmean(job.ratio for job in jobs),
)
