"""Tests that the time between two checkpoints is the best one for their cost."""

from __future__ import annotations

import math

from elasticjob._checkpoint_interval import CheckpointInterval
from hypothesis import given
from hypothesis import strategies as st


def seconds_between(step: float, cost: float, failure_seconds: float) -> float:
    """Train 100,000 steps; return the seconds of training between the last two checkpoints."""
    now = last = between = 0.0
    interval = CheckpointInterval(lambda mine: mine, failure_seconds=failure_seconds, now=now)
    for _ in range(100_000):
        now += step
        if interval.due():
            between = now - last
            interval.saved(now, now + cost)
            now = last = now + cost
    return between


@given(step=st.floats(0.01, 10), cost=st.floats(0.001, 60), failure_seconds=st.floats(600, 1e5))
def test_it_comes_close_to_the_best_time(step: float, cost: float, failure_seconds: float) -> None:
    best = math.sqrt(2 * cost * failure_seconds)
    found = seconds_between(step, cost, failure_seconds)
    assert best / 1.5 < found < best * 1.5 or found <= step * 1.001 or best > 20_000 * step


def test_all_ranks_have_the_same_interval() -> None:
    answers: list[bool] = []

    def any_rank(mine: bool) -> bool:
        answers.append(mine)
        return True  # another rank has a dearer save

    interval = CheckpointInterval(any_rank, failure_seconds=3600, now=0)
    assert interval.due()
    interval.saved(1000, 1000.001)
    assert answers == [False]
    assert interval.steps == 2
