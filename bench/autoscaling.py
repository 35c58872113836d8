"""Figures about the auto-scaler in simulated jobs: how good the size is, what it cost, and harm.

The worlds are drawn at random, of every kind. The master's real auto-scaler runs in each of them
for four hours, or until a finish time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from statistics import fmean

from bench.autoscale_objectives import OBJECTIVES, Met
from bench.autoscale_worlds import KINDS, UNSEEN, drawn
from bench.figure import Figure, Result

_WORLDS = {"Efficiency": 32, "Throughput": 12, "Deadline": 12, "Cost": 12}
"""Worlds of each kind, by objective."""
_LOW = 0.95
_MOST_PLANS = 10


@cache
def _jobs(objective: str) -> dict[str, list[Met]]:
    """Return how the jobs met an objective, by kind of world; all figures share these jobs."""
    run = OBJECTIVES[objective]
    numbers = range(UNSEEN, UNSEEN + _WORLDS[objective])
    return {kind: [run(drawn(kind, number)) for number in numbers] for kind in KINDS}


def _mean(
    name: str,
    unit: str,
    value: Callable[[Met], float],
    *,
    goal: float,
    at_least: bool = False,
    objective: str = "Efficiency",
) -> Figure:
    """Return the figure of the mean over all worlds; the mean of each kind goes to stderr."""

    async def measure() -> Result:
        jobs = _jobs(objective)
        values = {kind: [value(job) for job in found] for kind, found in jobs.items()}
        kinds = ", ".join(f"{kind} {fmean(found):.3f}" for kind, found in values.items())
        sys.stderr.write(f"{name}: {kinds}\n")
        every = [each for found in values.values() for each in found]
        total = fmean(every)
        return Result([total], [1.0], unit, n=len(every), ratio=total)

    return Figure(f"autoscaler_{name}", measure, goal, at_least)


def _harmed(job: Met) -> bool:
    """Return whether a job had too many plans, or ended slower than at a size that it had tried."""
    return job.outcome.most_plans > _MOST_PLANS or job.outcome.below_measured > 0.03


_ratio = attrgetter("ratio")
FIGURES = (
    _mean("end_ratio", "of best", _ratio, goal=0.985, at_least=True),
    _mean("ends_low", "of jobs", lambda job: job.ratio < _LOW, goal=0.05),
    _mean(
        "first_hour", "of an oracle's", attrgetter("outcome.first_hour"), goal=0.90, at_least=True
    ),
    _mean("four_hours", "of an oracle's", attrgetter("outcome.whole"), goal=0.96, at_least=True),
    _mean("too_many", "of jobs", lambda job: job.outcome.excess > 1 / 2, goal=0.08),
    _mean("utility", "of best", attrgetter("outcome.utility"), goal=0.97, at_least=True),
    _mean("excess", "of best size", attrgetter("outcome.excess"), goal=0.27),
    _mean("harm", "of jobs", _harmed, goal=0.02),
    _mean("throughput_ratio", "of most", _ratio, goal=0.97, at_least=True, objective="Throughput"),
    _mean("deadline_met", "of jobs", _ratio, goal=0.95, at_least=True, objective="Deadline"),
    _mean("deadline_members", "of fewest", attrgetter("members"), goal=1.35, objective="Deadline"),
    _mean("cost_ratio", "of that at the end", _ratio, goal=0.93, at_least=True, objective="Cost"),
)
