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
@pytest.mark.parametrize("case", some_of([case for case in cases() if case.noise], every=7))
def test_the_best_size_is_found_within_8_plans_and_with_one_reversal_at_most(case: Case, seed: int) -> None:
    check(run(case, seed))  # `make bench` runs more seeds


@pytest.mark.parametrize("case", some_of([case for case in cases() if not case.noise][::3], every=3))
def test_without_noise_it_is_found_as_well(case: Case) -> None:
    check(run(case))


@pytest.mark.parametrize("number", some_of(range(25), every=3))
def test_it_is_found_on_curves_drawn_at_random(number: int) -> None:
    check(run(drawn(number), number))


def check(outcome: SearchResult) -> None:
    told = f"best {outcome.best}, {outcome.sizes}\n" + "\n".join(outcome.reasons)
    assert outcome.ratio >= 0.95, told
    assert outcome.excess <= MOST_EXCESS, told
    assert outcome.reversals <= 1, told
    assert max(outcome.plans) <= MOST_PLANS, told


@pytest.mark.parametrize("case", some_of(hard_cases(), every=3))
def test_with_much_noise_it_still_settles_near_the_best_size(case: Case) -> None:
    outcome = run(case)
    assert outcome.ratio >= 0.95, (outcome.best, outcome.sizes)
    assert outcome.reversals <= 1, outcome.sizes
    assert max(outcome.plans) <= MOST_PLANS, outcome.sizes


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
    outcome = run(case)  # the simulation itself asserts that no plan leaves the bounds
    assert outcome.reversals <= 1, outcome.sizes
    assert max(outcome.plans) <= MOST_PLANS, outcome.sizes


def test_pods_that_cannot_be_had_are_asked_for_seldom() -> None:
    [case] = [case for case in cases() if case.name == "20 pods to be had"]
    outcome = run(case)
    assert outcome.sizes[-1][-1] == 20
    retries = sum("grow to" in reason for reason in outcome.reasons) - 4
    assert 1 <= retries <= 9, "after 10 minutes, then after twice as long each time, up to 6 hours"


def test_a_drift_that_nothing_can_be_gained_from_costs_one_search_only() -> None:
    [case] = [case for case in cases() if case.name == "drift: a neighbour takes half"]
    outcome = run(case)
    assert len(outcome.sizes) == 2, outcome.sizes
    assert outcome.sizes[1][0] >= 0.95 * 64
    assert outcome.sizes[1][-1] >= 0.95 * 64, outcome.sizes


def test_servers_get_cpu_for_as_long_as_more_workers_make_use_of_it() -> None:
    [case] = [case for case in cases() if case.name == "PS-bound, CPU to be had"]
    outcome = run(case)
    assert outcome.sizes[-1][-1] >= 50, (outcome.sizes, outcome.reasons)


@pytest.mark.parametrize(("sizes", "turns"), [([1, 2, 4], 0), ([1, 2, 4, 3], 1), ([4, 2, 4, 2], 2), ([4, 4, 2], 0)])
def test_the_simulator_counts_reversals(sizes: list[int], turns: int) -> None:
    assert reversals(sizes) == turns


def test_the_simulator_knows_the_best_size() -> None:
    curve = input_bound(1200.0)
    assert best_size(curve, Bounds(1, 64), 0.5) == 12
    assert best_size(curve, Bounds(1, 8), 0.5) == 8
