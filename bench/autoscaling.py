"""Figures about the auto-scaler in simulated jobs: how good the size is, what it cost, and harm.

The worlds are drawn at random, of every kind, or they are jobs that were measured in reality (see
`measured_worlds`). The master's real auto-scaler runs in each of them for four hours, or until a
finish time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from operator import attrgetter
from statistics import fmean
from typing import Any

from bench.autoscale_objectives import OBJECTIVES, Met, efficiency
from bench.autoscale_peers import PEERS
from bench.autoscale_worlds import KINDS, UNSEEN, drawn
from bench.figure import Figure, NotMeasured, Result
from bench.measured_worlds import BATCHES, measured_worlds, profiles_folder

_WORLDS = {"Efficiency": 32, "Throughput": 12, "Deadline": 12, "Cost": 12}
"""Worlds of each kind, by objective."""
_MEASURED = "measured jobs"
_SEEDS = 4
"""Runs of each measured job, with different noise."""
_LOW = 0.95
_MOST_PLANS = 10


@cache
def _jobs(objective: str, peer: str = "") -> dict[str, list[Met]]:
    """Return how the jobs met an objective, by kind of world; all figures share these jobs.

    A peer's policy may take the auto-scaler's place, where the objective is `Efficiency`.
    """
    if objective == _MEASURED:
        return _measured_jobs(peer)
    run = OBJECTIVES[objective]
    if peer:
        run = lambda world: efficiency(world, autoscaler=PEERS[peer]())  # noqa: E731 - one each
    numbers = range(UNSEEN, UNSEEN + _WORLDS[objective])
    return {kind: [run(drawn(kind, number)) for number in numbers] for kind in KINDS}


def _measured_jobs(peer: str) -> dict[str, list[Met]]:
    """Return how the measured jobs met the default objective, by application."""
    folder = profiles_folder()
    if folder is None:
        raise NotMeasured("no profiles of measured jobs; ELASTICJOB_TRACES may name their folder")
    return {
        application: [
            efficiency(world, seed, PEERS[peer]() if peer else None)
            for world in measured_worlds(folder, application)
            for seed in range(_SEEDS)
        ]
        for application in BATCHES
    }


def _mean(
    name: str,
    unit: str,
    value: Callable[[Met], float],
    *,
    goal: float,
    at_least: bool = False,
    objective: str = "Efficiency",
    total: Callable[[Iterable[float]], float] = fmean,
) -> Figure:
    """Return the figure of the mean over all worlds; those of kinds and peers go to stderr."""

    async def measure() -> Result:
        jobs = _jobs(objective)
        values = {kind: [value(job) for job in found] for kind, found in jobs.items()}
        kinds = ", ".join(f"{kind} {total(found):.3f}" for kind, found in values.items())
        peers = PEERS if objective in ("Efficiency", _MEASURED) else ()
        for peer in peers:
            others = [value(job) for found in _jobs(objective, peer).values() for job in found]
            kinds += f"; {peer} {total(others):.3f}"
        sys.stderr.write(f"{name}: {kinds}\n")
        every = [each for found in values.values() for each in found]
        result = total(every)
        return Result([result], [1.0], unit, n=len(every), ratio=result)

    return Figure(f"autoscaler_{name}", measure, goal, at_least)


def _harmed(job: Met) -> bool:
    """Return whether a job had too many plans, or ended slower than at a size that it had tried."""
    return job.outcome.most_plans > _MOST_PLANS or job.outcome.below_measured > 0.03


def _plans(job: Met) -> float:
    return sum(map(len, job.outcome.plans))


def _measured(
    name: str, unit: str, value: Callable[[Met], float], goal: float, **more: Any
) -> Figure:
    return _mean(f"measured_{name}", unit, value, goal=goal, objective=_MEASURED, **more)


_ratio = attrgetter("ratio")
_first_hour = attrgetter("outcome.first_hour")
_whole = attrgetter("outcome.whole")
_utility = attrgetter("outcome.utility")
_excess = attrgetter("outcome.excess")
FIGURES = (
    _mean("end_ratio", "of best", _ratio, goal=0.985, at_least=True),
    _mean("ends_low", "of jobs", lambda job: job.ratio < _LOW, goal=0.05),
    _mean("first_hour", "of an oracle's", _first_hour, goal=0.90, at_least=True),
    _mean("four_hours", "of an oracle's", _whole, goal=0.96, at_least=True),
    _mean("too_many", "of jobs", lambda job: job.outcome.excess > 1 / 2, goal=0.08),
    _mean("utility", "of best", _utility, goal=0.97, at_least=True),
    _mean("excess", "of best size", _excess, goal=0.27),
    _mean("harm", "of jobs", _harmed, goal=0.02),
    _mean("throughput_ratio", "of most", _ratio, goal=0.97, at_least=True, objective="Throughput"),
    _mean("deadline_met", "of jobs", _ratio, goal=0.95, at_least=True, objective="Deadline"),
    _mean("deadline_members", "of fewest", attrgetter("members"), goal=1.35, objective="Deadline"),
    _mean("cost_ratio", "of that at the end", _ratio, goal=0.93, at_least=True, objective="Cost"),
    _measured("end_ratio", "of best", _ratio, 0.97, at_least=True),
    _measured("ends_low", "of jobs", lambda job: job.ratio < _LOW, 0.1),
    _measured("first_hour", "of an oracle's", _first_hour, 0.91, at_least=True),
    _measured("four_hours", "of an oracle's", _whole, 0.96, at_least=True),
    _measured("utility", "of best", _utility, 0.985, at_least=True),
    _measured("excess", "of best size", _excess, 0.05),
    _measured("plans", "a job", _plans, 3.5),
    _measured("least_utility", "of best", _utility, 0.8, at_least=True, total=min),
)
