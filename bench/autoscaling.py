"""Figures about the auto-scaler in simulated jobs: how good the size is, what it cost, and harm.

The worlds are drawn at random, of every kind. The master's real auto-scaler runs in each of them
for four hours, or until a finish time.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import cache
from statistics import fmean

from bench.autoscale_objectives import OBJECTIVES, Met
from bench.autoscale_worlds import KINDS, UNSEEN, drawn
from bench.figure import Result

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
    name: str, unit: str, value: Callable[[Met], float], *, objective: str = "Efficiency"
) -> Callable[[], Awaitable[Result]]:
    """Return a measurement of the mean over all worlds.

    It prints the mean of each kind to stderr.
    """

    async def measure() -> Result:
        jobs = _jobs(objective)
        values = {kind: [value(job) for job in found] for kind, found in jobs.items()}
        kinds = ", ".join(f"{kind} {fmean(found):.3f}" for kind, found in values.items())
        sys.stderr.write(f"{objective}, {name}: {kinds}\n")
        every = [each for found in values.values() for each in found]
        total = fmean(every)
        return Result(value=total, unit=unit, limit=1.0, ratio=total, n=len(every))

    return measure


def _harmed(job: Met) -> bool:
    """Return whether a job had too many plans, or ended slower than at a size that it had tried."""
    return job.outcome.most_plans > _MOST_PLANS or job.outcome.below_measured > 0.03


end_ratio = _mean("throughput at the end", "of best", lambda job: job.ratio)
ends_low = _mean("ends below 0.95", "of jobs", lambda job: job.ratio < _LOW)
first_hour = _mean(
    "samples in the first hour", "of an oracle's", lambda job: job.outcome.first_hour
)
four_hours = _mean("samples in four hours", "of an oracle's", lambda job: job.outcome.whole)
too_many = _mean("half as many members too many", "of jobs", lambda job: job.outcome.excess > 1 / 2)
utility = _mean("utility at the end", "of best", lambda job: job.outcome.utility)
excess = _mean("members too many", "of best size", lambda job: job.outcome.excess)
harm = _mean("harm", "of jobs", _harmed)
throughput_ratio = _mean(
    "throughput at the end", "of most", lambda job: job.ratio, objective="Throughput"
)
deadline_met = _mean("ended in time", "of jobs", lambda job: job.ratio, objective="Deadline")
deadline_members = _mean("members", "of fewest", lambda job: job.members, objective="Deadline")
cost_ratio = _mean(
    "least cost of a sample", "of that at the end", lambda job: job.ratio, objective="Cost"
)
