"""The auto-scaler's search in simulated worlds: it ends near the best size, in few plans, with one turn at most."""

from __future__ import annotations

import pytest
from elasticjob_master.core.autoscale.decision import Bounds
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.autoscale_simulator import (
    Case,
    SearchResult,
    best_size,
    cases,
    drawn,
    hard_cases,
    input_bound,
    reversals,
    run,
)
from tests.support.thorough import some_of

MOST_PLANS = 8
MOST_EXCESS = 0.5
"""Members beyond the best size, where that can be found out only from one side."""


@pytest.mark.parametrize("seed", some_of([0, 1], every=2))
@pytest.mark.parametrize("case", some_of([case for case in cases() if case.noise], every=14))
def test_the_best_size_is_found_within_8_plans_and_with_one_reversal_at_most(case: Case, seed: int) -> None:
    check(run(case, seed))  # `make bench` runs more seeds


@pytest.mark.parametrize("case", some_of([case for case in cases() if not case.noise][::3], every=6))
def test_without_noise_it_is_found_as_well(case: Case) -> None:
    check(run(case))


@pytest.mark.parametrize("number", some_of(range(25), every=6))
def test_it_is_found_on_curves_drawn_at_random(number: int) -> None:
    check(run(drawn(number), number))


def check(result: SearchResult) -> None:
    summary = f"best {result.best}, {result.sizes}\n" + "\n".join(result.reasons)
    assert result.ratio >= 0.95, summary
    assert result.excess <= MOST_EXCESS, summary
    assert result.reversals <= 1, summary
    assert max(result.plans) <= MOST_PLANS, summary


@pytest.mark.parametrize("case", some_of(hard_cases(), every=6))
def test_with_much_noise_it_still_settles_near_the_best_size(case: Case) -> None:
    result = run(case)
    assert result.ratio >= 0.95, (result.best, result.sizes)
    assert result.reversals <= 1, result.sizes
    assert max(result.plans) <= MOST_PLANS, result.sizes


@settings(max_examples=25)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 40),
    st.floats(0.05, 0.99),
    st.lists(st.floats(1.0, 1e6), min_size=40, max_size=40),
    st.floats(0.0, 0.2),
)
def test_whatever_the_curve_it_stays_in_bounds_turns_at_most_once_and_settles(
    start: int, low: int, high: int, objective: float, rates: list[float], noise: float
) -> None:
    low, high = sorted((low, high))
    case = Case(
        "any",
        lambda size: rates[size - 1] if size <= 40 else rates[-1],
        start=min(max(start, low), high),
        bounds=Bounds(low, high),
        objective=objective,
        noise=noise,
        seconds=20_000.0,
    )
    result = run(case)  # the simulation itself asserts that no plan leaves the bounds
    assert result.reversals <= 1, result.sizes
    assert max(result.plans) <= MOST_PLANS, result.sizes


@pytest.mark.thorough
def test_pods_that_cannot_be_had_are_asked_for_seldom() -> None:
    [case] = [case for case in cases() if case.name == "20 pods to be had"]
    result = run(case)
    assert result.sizes[-1][-1] == 20
    retries = sum("grow to" in reason for reason in result.reasons) - 4
    assert 1 <= retries <= 9, "after 10 minutes, then after twice as long each time, up to 6 hours"


def test_a_drift_that_nothing_can_be_gained_from_costs_one_search_only() -> None:
    [case] = [case for case in cases() if case.name == "drift: a neighbour takes half"]
    result = run(case)
    assert len(result.sizes) == 2, result.sizes
    assert result.sizes[1][0] >= 0.95 * 64
    assert result.sizes[1][-1] >= 0.95 * 64, result.sizes


def test_servers_get_cpu_for_as_long_as_more_workers_make_use_of_it() -> None:
    [case] = [case for case in cases() if case.name == "PS-bound, CPU to be had"]
    result = run(case)
    assert result.sizes[-1][-1] >= 50, (result.sizes, result.reasons)


@pytest.mark.parametrize(("sizes", "turns"), [([1, 2, 4], 0), ([1, 2, 4, 3], 1), ([4, 2, 4, 2], 2), ([4, 4, 2], 0)])
def test_the_simulator_counts_reversals(sizes: list[int], turns: int) -> None:
    assert reversals(sizes) == turns


def test_the_simulator_knows_the_best_size() -> None:
    curve = input_bound(1200.0)
    assert best_size(curve, Bounds(1, 64), 0.5) == 12
    assert best_size(curve, Bounds(1, 8), 0.5) == 8
