"""Tests the auto-scaler in simulated jobs.

It must reach a size near the best one early and in few plans, and must not slow down any job.
"""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.autoscale_job import COOLDOWN, Outcome, SimulatedJob, turns
from bench.autoscale_worlds import (
    HOUR,
    KINDS,
    UNSEEN,
    Curve,
    Servers,
    World,
    drawn,
    input_bound,
    linear,
    named_worlds,
    saturating,
)
from tests.support.thorough import examples, some_of

MOST_PLANS = 10
MOST_TURNS = 6
"""The most changes of direction in one search.

Each trial goes where most is promised, so the search may look to both sides before it goes back.
"""
SMOOTH = [world for world in named_worlds() if world.kind == "smooth"]


def named(name: str) -> World:
    [world] = [world for world in named_worlds() if world.name == name]
    return world


@pytest.mark.parametrize("world", some_of(SMOOTH, every=12), ids=lambda world: world.name)
def test_on_a_smooth_curve_the_best_size_is_found_in_few_plans(world: World) -> None:
    outcome = SimulatedJob(world).run()
    assert outcome.ratio >= 0.9, outcome
    assert outcome.turns <= MOST_TURNS, outcome
    assert outcome.most_plans <= MOST_PLANS, outcome


@pytest.fixture(scope="module", params=some_of(KINDS, every=3))
def outcomes(request: pytest.FixtureRequest) -> list[Outcome]:
    """Return the results of some jobs in random worlds of one kind; `make simulate` runs more."""
    numbers = range(UNSEEN, UNSEEN + 4)
    return [SimulatedJob(drawn(request.param, number)).run() for number in numbers]


@pytest.mark.guarantee("rough-or-changing-throughput")
def test_in_every_kind_of_world_the_job_ends_near_its_best_size(outcomes: list[Outcome]) -> None:
    assert fmean(outcome.ratio for outcome in outcomes) >= 0.9, "\n".join(map(str, outcomes))


def test_in_every_kind_of_world_the_gain_comes_early(outcomes: list[Outcome]) -> None:
    assert fmean(outcome.first_hour for outcome in outcomes) >= 0.75, "\n".join(map(str, outcomes))
    assert fmean(outcome.whole for outcome in outcomes) >= 0.85, "\n".join(map(str, outcomes))


@pytest.mark.guarantee("rough-or-changing-throughput")
def test_no_question_takes_more_than_ten_plans(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        assert outcome.most_plans <= MOST_PLANS, outcome


@pytest.mark.guarantee("rough-or-changing-throughput")
@settings(max_examples=examples(8))
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 40),
    st.floats(0.05, 0.99),
    st.lists(st.floats(1.0, 1e6), min_size=40, max_size=40),
    st.floats(0.0, 0.2),
)
@example(2, 1, 12, 0.125, [1.0] * 40, 0.1875)  # in noise that looks like changes
def test_on_every_curve_it_stays_in_bounds_and_ends_a_search_in_few_plans(
    start: int, low: int, high: int, objective: float, rates: list[float], noise: float
) -> None:
    low, high = sorted((low, high))
    world = World(
        kind="any",
        name="any",
        curve=lambda size: rates[size - 1],
        start=min(max(start, low), high),
        minimum=low,
        maximum=high,
        objective=objective,
        noise=noise,
    )
    outcome = SimulatedJob(world).run()  # it asserts itself that no plan leaves the bounds
    assert outcome.most_plans <= MOST_PLANS, outcome


@pytest.mark.guarantee("rough-or-changing-throughput")
def test_a_short_job_leaves_a_step_beyond_a_cliff_early() -> None:
    world = World("cliff", "beyond 6", lambda n: 100.0 * n * (0.3 if n > 6 else 1.0), 6, 8)
    outcome = SimulatedJob(world).run(hours=1 / 3)
    assert outcome.sizes[0][-1] == 6, outcome
    assert outcome.whole >= 0.7, outcome


def second_node(left: float) -> Curve:
    """Return the throughput of nodes of 8 members: on several nodes each adds this part."""
    return lambda n: 100.0 * n * (1.0 if n <= 8 else left if n % 8 == 0 else 0.8 * left)


@pytest.mark.guarantee("rough-or-changing-throughput")
@pytest.mark.parametrize(("start", "left"), [(2, 0.53), (6, 0.45)])
def test_a_second_node_that_is_slower_than_one_does_not_end_the_climb(
    start: int, left: float
) -> None:
    outcome = SimulatedJob(World("nodes", f"{left}", second_node(left), start, 64)).run()
    assert outcome.sizes[-1][-1] == 64, outcome
    assert outcome.whole >= 0.9, outcome


@pytest.mark.guarantee("rough-or-changing-throughput")
@pytest.mark.parametrize("start", [2, 4])
def test_a_size_beyond_a_knee_is_left_at_once(start: int) -> None:
    def curve(n: int) -> float:
        return 100.0 * n if n <= 8 else 800.0 * (8 / n) ** 0.3

    job = SimulatedJob(World("knee", "8", curve, start, 64))
    outcome = job.run()
    assert outcome.sizes[0][-1] == 8, outcome
    [beyond] = [number for number, size in enumerate(outcome.sizes[0]) if size > 12]
    tried, left = (plan.at for plan in outcome.plans[0][beyond - 1 : beyond + 1])
    assert left - tried < COOLDOWN, outcome
    assert outcome.whole >= 0.95, outcome


@pytest.mark.guarantee("rough-or-changing-throughput")
def test_a_job_that_begins_at_its_best_size_loses_little_by_a_look_at_fewer_members() -> None:
    outcome = SimulatedJob(World("smooth", "at the maximum", linear, 4, 4)).run(hours=1.0)
    assert len(outcome.sizes[0]) == 3, outcome
    assert outcome.sizes[0][-1] == 4, outcome
    assert outcome.whole >= 0.96, outcome


@pytest.mark.guarantee("rough-or-changing-throughput")
def test_a_job_that_begins_at_its_best_size_ends_there_despite_noise() -> None:
    outcome = SimulatedJob(drawn("noisy", 128)).run()
    assert outcome.sizes[0][-1] == 64, outcome
    assert outcome.whole >= 0.95, outcome


@pytest.mark.guarantee("rough-or-changing-throughput")
def test_a_size_that_is_not_shown_to_be_worth_its_members_is_left_for_a_smaller_one() -> None:
    outcome = SimulatedJob(drawn("power", 114)).run()
    assert outcome.sizes[-1][-1] <= 4, outcome


@pytest.mark.guarantee("rough-or-changing-throughput")
@pytest.mark.parametrize("curve", [input_bound(2000.0), saturating(0.05)], ids=["bound", "smooth"])
@pytest.mark.parametrize(("hours", "least"), [(1 / 3, 0.8), (4.0, 0.97)])
def test_a_job_that_begins_at_its_best_size_loses_little_by_its_search(
    curve: Curve, hours: float, least: float
) -> None:
    outcome = SimulatedJob(World("knee", "20", curve, 20)).run(hours=hours)
    assert outcome.whole >= least, outcome


@pytest.mark.guarantee("rough-or-changing-throughput")
def test_a_neighbour_does_not_shrink_a_job_below_its_best_size() -> None:
    outcome = SimulatedJob(drawn("disturbed", 108)).run()
    assert outcome.sizes[-1][-1] == 8, outcome
    assert outcome.whole >= 0.95, outcome


@pytest.mark.guarantee("rough-or-changing-throughput")
def test_a_world_that_scales_better_later_is_found_by_a_look_up() -> None:
    world = World(
        "late",
        "a cold cache for 40 minutes",
        lambda n: min(100.0 * n, 800.0),
        4,
        64,
        later=linear,
        later_at=2400.0,
    )
    outcome = SimulatedJob(world).run(hours=8.0)
    assert outcome.sizes[-1][-1] == 64, outcome
    assert outcome.looks == 1, outcome


@pytest.mark.guarantee("rough-or-changing-throughput")
def test_looks_at_a_world_that_stays_as_it_is_get_rarer_and_cost_little() -> None:
    world = World("settled", "input-bound", lambda n: min(100.0 * n, 800.0), 4, 64)
    outcome = SimulatedJob(world).run(hours=48.0)
    looks = [plans[0].at for plans in outcome.plans[1:]]
    assert 2 <= len(looks) == outcome.looks <= 4, outcome
    waits = [after - before for before, after in pairwise(looks)]
    assert all(after > 1.5 * before for before, after in pairwise(waits)), outcome
    assert outcome.whole >= 0.99, outcome


@pytest.mark.thorough
def test_pods_that_cannot_be_had_are_asked_for_seldom() -> None:
    job = SimulatedJob(named("20 pods to be had"))
    outcome = job.run(hours=24.0)
    assert outcome.sizes[-1][-1] == 20, outcome
    assert job.autoscaler.memory.plans.pause_seconds == 32 * 900.0, (
        "the pauses have doubled up to the longest one"
    )


def test_a_drift_that_nothing_can_be_gained_from_costs_one_search_only() -> None:
    outcome = SimulatedJob(named("a neighbour takes half")).run(hours=24.0)
    assert len(outcome.sizes) == 2, outcome
    assert outcome.ratio >= 0.95, outcome


def test_a_neighbour_that_stays_for_half_an_hour_changes_nothing_once_the_size_is_found() -> None:
    world = World(
        "disturbed",
        "for 30 minutes",
        linear,
        8,
        16,
        factor=lambda t: 0.5 if 7200 < t < 9000 else 1.0,
    )
    outcome = SimulatedJob(world).run()
    [sizes] = outcome.sizes
    assert sizes[-1] == 16, outcome


@pytest.mark.parametrize("start", some_of([63, 62, 60, 50], every=4))
def test_a_job_that_begins_just_below_its_maximum_looks_for_fewer_members(start: int) -> None:
    world = World("near", "the maximum", input_bound(300.0), start, 64, noise=0.02)
    outcome = SimulatedJob(world).run(hours=5.0)
    assert outcome.sizes[-1][-1] <= 4, outcome
    assert outcome.ratio >= 0.95, outcome


@pytest.mark.guarantee("edited-bounds-after-the-search")
@pytest.mark.parametrize(("maximum", "size"), [(24, 24), (64, 64), (17, 17)])
def test_where_the_largest_size_was_the_best_one_a_larger_maximum_is_searched_once(
    maximum: int, size: int
) -> None:
    job = SimulatedJob(World("raised", f"to {maximum}", linear, 2, 16))
    assert job.run().sizes == [[2, 8, 16]]
    job.allow(1, maximum)
    outcome = job.run(hours=12.0)
    assert outcome.sizes[-1][-1] == size, outcome
    assert outcome.most_plans <= 3 + 2, outcome
    assert job.autoscaler.memory.search.settled_size == size


@pytest.mark.guarantee("edited-bounds-after-the-search")
@pytest.mark.parametrize(
    "curve", [linear, input_bound(1600.0), saturating(0.06)], ids=["linear", "bound", "saturating"]
)
def test_each_raise_begins_one_search_at_most_and_no_harm_comes_of_it(curve: Curve) -> None:
    world = World("raised", "again and again", curve, 2, 16)
    job = SimulatedJob(world)
    steps = (16, 20, 20, 32, 16, 32, 64)
    for hour, maximum in enumerate(steps, 1):
        job.allow(1, max(maximum, job.scaling.desired))
        job.run(hours=4.0 * hour)
    outcome = job.outcome
    plans = [plan for plans in outcome.plans for plan in plans]
    assert len(plans) - 2 * outcome.looks <= MOST_PLANS, outcome
    assert outcome.ratio >= 0.95, outcome
    assert outcome.utility >= 0.95, outcome


@pytest.mark.guarantee("edited-bounds-after-the-search")
@pytest.mark.parametrize(
    ("curve", "edits"),
    [
        (linear, [(1, 16)]),
        (linear, [(4, 16), (2, 16)]),
        (linear, [(1, 8), (1, 12), (1, 16)]),
        (saturating(0.2), [(1, 64), (1, 100)]),
    ],
    ids=["as before", "minimum", "lowered and set back", "the best size is below the maximum"],
)
def test_an_edit_of_the_bounds_that_cannot_matter_begins_no_search(
    curve: Curve, edits: list[tuple[int, int]]
) -> None:
    job = SimulatedJob(World("edited", "bounds", curve, 2, 16))
    plans = [len(each) for each in job.run().plans]
    settled = job.autoscaler.memory.search.settled_size
    assert settled is not None
    for number, (minimum, maximum) in enumerate(edits, 1):  # all of them before the next look
        job.allow(minimum, maximum)
        job.run(hours=4 + number / 4)
        assert job.autoscaler.memory.search.settled_size == settled
    assert [len(each) for each in job.outcome.plans] == plans, job.outcome


@pytest.mark.parametrize("hours", [0.5, 2.0, 4.0])
def test_a_throughput_that_changes_by_the_hour_costs_few_plans_a_day_and_no_member(
    hours: float,
) -> None:
    """Half of the time it is halved.

    Searches that begin in one half and end in the other compare what cannot be.
    """
    world = World(
        "phases",
        f"{hours} h",
        linear,
        8,
        16,
        factor=lambda t: 0.5 if t / HOUR % hours < hours / 2 else 1.0,
    )
    outcome = SimulatedJob(world).run(hours=24.0)
    assert sum(map(len, outcome.plans)) <= MOST_PLANS, outcome
    assert outcome.sizes[-1][-1] == 16, outcome


def test_a_size_that_fills_its_nodes_is_not_left_for_one_that_does_not() -> None:
    def curve(size: int) -> float:
        nodes = -(-size // 8)
        return 100.0 * size * (0.6 if nodes > 1 and size % 8 else 1.0) / (1 + 0.4 * (nodes - 1))

    for start in (2, 3, 6, 12):
        outcome = SimulatedJob(World("nodes", f"nodes of 8, from {start}", curve, start, 32)).run()
        assert outcome.sizes[-1][-1] % 8 == 0, outcome


def test_a_single_member_without_communication_does_not_predict_larger_sizes() -> None:
    world = World("onset", "from 1", lambda size: 100.0 * size * (0.5 if size > 1 else 1.0), 1, 32)
    assert SimulatedJob(world).run().sizes == [[1, 4, 16, 32]]


def test_servers_get_cpu_for_as_long_as_more_workers_make_use_of_it() -> None:
    outcome = SimulatedJob(named("CPU to be had")).run()
    assert outcome.most_cores >= 4.0, outcome
    assert outcome.ratio >= 0.95, outcome


@pytest.mark.guarantee("fruitless-resources-are-taken-back")
def test_servers_that_only_look_busy_get_more_cpu_and_give_it_back() -> None:
    world = named("they only look busy")
    job = SimulatedJob(world)
    outcome = job.run()
    assert outcome.most_cores == 4.0, outcome
    reasons = [plan.reason for plans in outcome.plans for plan in plans]
    assert sum("every ps gets 4" in reason for reason in reasons) <= 2, "once at each size"
    assert any("it did not help: every ps gets 2" in reason for reason in reasons), outcome
    assert outcome.ratio >= 0.95, "busy servers bound no workers"


def test_servers_that_can_get_no_cpu_become_more_for_as_long_as_more_workers_make_use_of_it() -> (
    None
):
    world = World(
        "servers", "no CPU, but servers", linear, 2, servers=Servers(300.0, room=0.0, most=8)
    )
    job = SimulatedJob(world)
    fixed = SimulatedJob(dataclasses.replace(world, servers=Servers(300.0, room=0.0)))
    outcome = job.run()
    assert outcome.most_servers >= 4, outcome
    assert outcome.ratio >= 0.95, outcome
    fixed.run()
    assert job._samples > 1.5 * fixed._samples, outcome


@pytest.mark.guarantee("fruitless-resources-are-taken-back")
def test_servers_that_only_look_busy_become_more_and_then_as_many_as_before() -> None:
    world = World(
        "servers",
        "busy, may be more",
        saturating(0.02),
        24,
        servers=Servers(spinning=True, room=0.0, most=8),
    )
    job = SimulatedJob(world)
    outcome = job.run()
    reasons = [plan.reason for plans in outcome.plans for plan in plans]
    assert sum("4 of them instead of 2" in reason for reason in reasons) <= 2, "once at each size"
    assert any("it did not help; back to 2" in reason for reason in reasons), outcome
    assert (outcome.most_servers, len(job._members) - job._scaling.desired) == (4, 2)
    assert outcome.ratio >= 0.95, outcome


@pytest.mark.guarantee("fruitless-resources-are-taken-back")
def test_servers_without_free_cpu_bound_no_workers() -> None:
    world = World(
        "servers", "busy, no room", saturating(0.02), 4, servers=Servers(spinning=True, room=0.0)
    )
    outcome = SimulatedJob(world).run()
    assert outcome.ratio >= 0.95, outcome


@pytest.mark.parametrize(
    ("sizes", "count"), [([1, 2, 4], 0), ([1, 2, 4, 3], 1), ([4, 2, 4, 2], 2), ([4, 4, 2], 0)]
)
def test_the_simulator_counts_turns(sizes: list[int], count: int) -> None:
    assert turns(sizes) == count


def test_the_simulator_knows_the_best_size() -> None:
    assert World("", "", input_bound(1200.0), 1).best(0.0) == 12
    assert World("", "", input_bound(1200.0), 1, maximum=8).best(0.0) == 8
