"""Jobs of a trace in simulated time: when they end, and what counts as a change."""

from __future__ import annotations

import math

from elasticjob_operator.core.sharing.model import Pool
from elasticjob_operator.core.sharing.simulation import SimulatedJob, first_come, play, pooled


def job(name: str, arrives: float, asked: int, samples: float) -> SimulatedJob:
    return SimulatedJob(name, arrives, asked, lambda size: float(size), samples)


def test_jobs_with_fixed_sizes_run_one_after_another_and_a_small_one_between() -> None:
    jobs = [job("a", 0, 3, 900), job("b", 0, 3, 900), job("c", 10, 1, 90)]
    found = play(jobs, first_come((4,)), 10_000)
    assert found.seconds == {"a": 330, "b": 660, "c": 140}
    assert (found.mean, found.percentile) == (1130 / 3, 660)
    assert (found.changes_per_hour, found.unfinished) == (0, 0)


def test_a_pool_starts_a_job_beside_one_that_shrinks_for_it() -> None:
    rules = Pool("p", "Fair", (4,), cooldown_seconds=60.0)
    found = play([job("a", 0, 4, 4000), job("b", 90, 4, 400)], pooled(rules), 10_000)
    assert found.seconds["b"] < 400
    assert found.seconds["a"] > 1030
    assert found.changes_per_hour > 0


def test_jobs_that_do_not_end_in_the_longest_time_are_counted() -> None:
    jobs = [job("a", 0, 4, 1e9), job("b", 0, 4, 1), job("late", 5000, 1, 1)]
    found = play(jobs, first_come((4,)), 3600)
    assert found.unfinished == 3
    assert found.mean == math.inf


def test_the_time_before_an_arrival_is_passed_over() -> None:
    late = job("late", 1e9, 1, 30)
    assert play([late], first_come((4,)), 2e9).seconds["late"] < 120
