"""The simulation of goodput agrees with what can be computed by hand."""

from __future__ import annotations

import math

import pytest

from bench.goodput import WAYS, Costs, goodput

RARELY = 64 * 3600 * 1e6
"""One failure of the job in a million hours."""


def test_without_failures_only_the_saves_cost_something() -> None:
    costs = Costs(kill=9, join=9, save=7200, load=9, load_of_joiner=9, missing=9)
    interval = math.sqrt(2 * costs.save * RARELY / 64)
    share = interval / (interval + costs.save)
    found = goodput(costs, RARELY, 1, seconds=20 * (interval + costs.save))
    assert found == pytest.approx(share, abs=1e-6)


def test_a_failure_costs_its_pauses_and_what_was_trained_since_the_last_save() -> None:
    """If that is little against the time between two failures."""
    costs = Costs(kill=4, join=2, save=0.5, load=1, load_of_joiner=3, missing=30)
    between = 36_000.0  # of the job
    interval = math.sqrt(2 * costs.save * between)
    lost = costs.save / interval + (interval / 2 + 4 + 1 + 2 + 3 + 0.5 + 30 / 64) / between
    found = [goodput(costs, 64 * between, seed, seconds=1e7) for seed in range(10)]
    assert 1 - sum(found) / len(found) == pytest.approx(lost, rel=0.1)


@pytest.mark.parametrize("hours", [1, 6])
def test_each_way_to_resume_is_better_than_the_one_before(hours: int) -> None:
    ways = list(WAYS.values())[:4]
    found = [goodput(way, hours * 3600, 1, seconds=36_000) for way in ways]
    assert found == sorted(found)
