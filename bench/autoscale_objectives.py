"""Simulated jobs with each objective of the auto-scaler, and how well the objective was met."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.monitors.autoscaler import AutoScaler

from bench.autoscale_job import WALL, Outcome, SimulatedJob
from bench.autoscale_worlds import HOUR, World

_FINISH_HOURS = 6.0
_LATEST_HOURS = 12.0
"""Simulated jobs are given up then."""


@dataclass(frozen=True)
class Met:
    """The degree to which an objective was met.

    Attributes:
        outcome: how the job went.
        ratio: the throughput at the end or the least cost of a sample, of what was possible. With a
            finish time it is 1 if the job ended in time, else 0.
        members: the number of members at the end, or with a finish time the mean number, relative
            to the fewest that do as well.
    """

    outcome: Outcome
    ratio: float
    members: float


def efficiency(world: World, seed: int = 0, autoscaler: AutoScaler | None = None) -> Met:
    """Run a job whose members each must add as much as the world says."""
    outcome = SimulatedJob(world, seed, autoscaler=autoscaler).run()
    return Met(outcome, outcome.ratio, outcome.sizes[-1][-1] / outcome.best)


def throughput(world: World) -> Met:
    """Run a job that needs the highest throughput."""
    job = SimulatedJob(world, objective=Objective("Throughput"))
    outcome = job.run()
    size = outcome.sizes[-1][-1]
    sizes = _sizes(world)
    rate = _rate_at(world, job.now)
    most = max(map(rate, sizes))
    fewest = min(n for n in sizes if rate(n) >= 0.98 * min(most, rate(size)))
    return Met(outcome, rate(size) / most, size / fewest)


def cost(world: World) -> Met:
    """Run a job that needs the cheapest samples.

    Its other roles cost as much as 0 to 32 members.
    """
    others = random.Random(world.name).choice((0.0, 1.0, 4.0, 12.0, 32.0))  # noqa: S311 - a simulation
    job = SimulatedJob(world, objective=Objective("Cost", price=1.0, others=others))
    outcome = job.run()
    size = outcome.sizes[-1][-1]
    rate = _rate_at(world, job.now)

    def each(n: int) -> float:
        return (others + n) / rate(n)

    cheapest = min(_sizes(world), key=lambda n: (round(each(n), 12), -n))
    return Met(outcome, each(cheapest) / each(size), size / cheapest)


def deadline(world: World, *, part: float | None = None) -> Met:
    """Run a job that has to end after six hours.

    Args:
        world: where it runs.
        part: the samples that it has to train, relative to those of the fastest size in six hours;
            by default a random number from 0.2 to 0.8.
    """
    if part is None:
        part = random.Random(world.name).uniform(0.2, 0.8)  # noqa: S311 - a simulation
    trained = {size: _trained(world, size) for size in _sizes(world)}
    total = part * max(trained.values())
    objective = Objective("Deadline", finish_at=WALL + _FINISH_HOURS * HOUR)
    job = SimulatedJob(world, objective=objective, total=total)
    outcome = job.run(hours=_LATEST_HOURS)
    fewest = min((n for n in trained if trained[n] >= total), default=world.maximum)
    average = outcome.member_hours / (job.now / HOUR)
    return Met(outcome, float(job.now <= _FINISH_HOURS * HOUR), average / fewest)


OBJECTIVES: dict[str, Callable[[World], Met]] = {
    "Efficiency": efficiency,
    "Throughput": throughput,
    "Deadline": deadline,
    "Cost": cost,
}


def _sizes(world: World) -> range:
    return range(world.minimum, min(world.maximum, world.pods) + 1)


def _rate_at(world: World, seconds: float) -> Callable[[int], float]:
    return lambda size: world.rate(size, seconds)


def _trained(world: World, size: int) -> float:
    """Return the samples that a size trains until the finish time."""
    step = 60.0
    return math.fsum(
        world.rate(size, n * step) * step for n in range(int(_FINISH_HOURS * HOUR / step))
    )
