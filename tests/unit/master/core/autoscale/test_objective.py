"""Tests the objectives of the auto-scaler: the sizes each prefers, and jobs that have it."""

from __future__ import annotations

import dataclasses
from statistics import fmean
from typing import Any

import msgspec
import pytest
from elasticjob_api.elasticjob import ElasticJob
from elasticjob_master.cluster import scaling_spec
from elasticjob_master.core.autoscale.decide import decide
from elasticjob_master.core.autoscale.decision import Bounds, ScalingInputs
from elasticjob_master.core.autoscale.measurements import Measurement, with_measurement
from elasticjob_master.core.autoscale.objective import (
    Objective,
    Rest,
    clock_text,
    meaning_text,
    objective_text,
)
from elasticjob_master.core.autoscale.scaling_memory import MeasuredRate, ScalingMemory

from bench.autoscale_job import WALL, Outcome, SimulatedJob
from bench.autoscale_objectives import OBJECTIVES, Met, deadline
from bench.autoscale_worlds import (
    HOUR,
    KINDS,
    UNSEEN,
    World,
    drawn,
    linear,
    network_bound,
    saturating,
)
from tests.support.master.scaling_memories import changed, memory_of
from tests.support.thorough import some_of

MOST_PLANS = 10
NOON = 1767268800.0
"""2026-01-01T12:00 UTC."""


def measured(*rates: tuple[int, float], windows: int = 4) -> ScalingMemory:
    """A memory with these sizes and rates; the last one is the present size."""
    weights = {size: float(windows) for size, _ in rates}
    return memory_of(rates=dict(rates), weights=weights, asked=rates[-1][0])


def inputs(size: int, objective: Objective, *, high: int = 64, **more: Any) -> ScalingInputs:
    values = ScalingInputs(
        role="worker", size=size, bounds=Bounds(1, high), objective=objective, horizon=4 * HOUR
    )
    return dataclasses.replace(values, **more)


def until(hours: float, samples: float, **more: float) -> Objective:
    """Return a finish time these hours after noon, with these samples left at noon."""
    return Objective("Deadline", finish_at=NOON + hours * HOUR, rest=Rest(samples, NOON, **more))


def outcome_of(objective: Objective, *, hours: float = 3.0, total: float = 0.0) -> Outcome:
    """Simulate a job with 5 % serial work, which starts small and may have up to 64 members."""
    world = World("objective", "saturating", saturating(0.05), start=2)
    return SimulatedJob(world, objective=objective, total=total).run(hours=hours)


# --- the size that each prefers


def test_throughput_takes_more_members_than_efficiency_and_the_smallest_of_equal_sizes() -> None:
    assert outcome_of(Objective("Efficiency", 0.5)).sizes[-1][-1] < 32
    assert outcome_of(Objective("Throughput")).sizes[-1][-1] == 64
    plateau = changed(
        measured((2, 200.0), (4, 400.0), (8, 800.0), (32, 803.0), (16, 800.0)), moves=8
    )
    assert (decide(plateau, inputs(16, Objective("Throughput"))).size or 16) <= 10


def test_throughput_goes_back_to_a_size_that_was_faster_however_much_larger_it_is() -> None:
    memory = changed(measured((2, 200.0), (64, 300.0), (4, 250.0)), moves=8)
    assert decide(memory, inputs(4, Objective("Throughput"))).size == 64
    assert decide(memory, inputs(4, Objective("Efficiency", 0.5))).size == 2


def test_the_dearer_the_rest_of_the_job_is_the_more_members_are_worth_their_price() -> None:
    def size(others: float) -> int:
        return outcome_of(Objective("Cost", price=2.0, others=others)).sizes[-1][-1]

    assert size(2.0) < 8 < size(80.0)


def test_cost_is_what_all_members_cost_for_what_they_train() -> None:
    """10 members for 2 an hour each, and others for 16.

    36 an hour, in which 100 samples/s are 360,000.
    """
    objective = Objective("Cost", price=2.0, others=16.0)
    assert objective.cost(100.0, 10) == pytest.approx(100.0)
    assert meaning_text(objective, 100.0, 10) == "100 for a million samples"
    cheap = objective.worth(100.0, 10)
    dear = objective.worth(100.0 * 0.97, 10)
    assert cheap > dear
    assert objective.worth(150.0, 10) > cheap


@pytest.mark.guarantee("auto-scaling-objectives")
def test_what_costs_the_same_within_the_noise_is_not_left_for_fewer_members() -> None:
    """Perfect scaling, and nothing else to pay.

    Every size costs the same, so noise must not lead to few.
    """
    for seed in range(4):
        world = World("objective", "linear", linear, 8, 16, noise=0.03)
        outcome = SimulatedJob(world, seed, objective=Objective("Cost")).run()
        assert outcome.sizes[-1][-1] >= 8, outcome


def test_a_deadline_takes_the_fewest_members_that_make_it() -> None:
    """8 hours of two members' work are to be done in 4."""
    curve = saturating(0.05)
    objective = Objective("Deadline", finish_at=WALL + 4 * HOUR)
    outcome = outcome_of(objective, hours=4.0, total=8 * HOUR * curve(2))
    size = outcome.sizes[0][-1]
    assert 4 <= size <= 6, outcome
    assert outcome.member_hours < 4 * 7, outcome
    assert "before finishTime" in outcome.plans[0][-1].reason


def test_what_a_deadline_needs_has_a_reserve_for_rescales_noise_and_more() -> None:
    objective = until(2.0, 360_000.0, lost=3600.0, noise=0.02)
    assert objective.needed == pytest.approx(100.0)
    assert objective.enough == pytest.approx(112.0)
    assert meaning_text(objective, 200.0, 8) == "ends 2026-01-01T13:30Z, 30 min before finishTime"
    assert meaning_text(objective, 50.0, 4) == "ends 2026-01-01T15:00Z, 60 min after finishTime"


@pytest.mark.guarantee("auto-scaling-objectives")
def test_a_deadline_that_no_size_makes_is_throughput_and_says_so_once() -> None:
    world = World("objective", "peak at 26", network_bound(0.01, 0.0015), 4)
    objective = Objective("Deadline", finish_at=WALL + HOUR)
    job = SimulatedJob(world, objective=objective, total=24 * HOUR * world.rate(26, 0))
    outcome = job.run(hours=12.0)
    assert outcome.sizes == outcome.sizes[:1], (
        "one search, although the finish time has passed meanwhile"
    )
    assert outcome.most_plans <= MOST_PLANS, outcome
    size = outcome.sizes[-1][-1]
    assert world.rate(size, 0) >= 0.97 * world.rate(26, 0), outcome
    assert "no size is expected to make it, so it is as Throughput" in job.autoscaler.reason
    assert "has passed" in objective_text(job.autoscaler.objective(job.scaling), 0.0, size)


@pytest.mark.guarantee("auto-scaling-objectives")
def test_a_deadline_without_a_total_of_steps_is_efficiency_and_says_so() -> None:
    objective = Objective("Deadline", finish_at=NOON)
    assert (
        outcome_of(dataclasses.replace(objective, finish_at=WALL + HOUR)).sizes
        == outcome_of(Objective()).sizes
    )
    decision = decide(measured((4, 400.0), (8, 420.0)), inputs(8, objective))
    assert "the training reports no total of steps, which Deadline needs" in decision.reason
    assert "reports no total of steps, so it is as Efficiency with 50%" in objective_text(
        objective, 0.0, 8
    )


# --- while the job runs


def settled(needed: float = 700.0) -> ScalingMemory:
    """At 8 members since a while, with 800 samples/s."""
    memory = changed(
        measured((4, 400.0), (8, 800.0)), settled=8, reference=800.0, needed=needed, waited=20
    )
    return changed(memory, objective=until(10.0, 0.0).key)


def size_for(memory: ScalingMemory, needed: float, **more: Any) -> int | None:
    return decide(memory, inputs(8, until(10.0, needed * 10 * HOUR), **more)).size


def test_a_settled_size_is_left_when_the_finish_time_needs_more_or_far_less() -> None:
    assert size_for(settled(), 740.0) is None
    assert (size_for(settled(), 820.0) or 0) > 8
    assert size_for(settled(), 600.0) is None, "a little less is no reason"
    assert (size_for(settled(), 300.0) or 8) < 8
    assert size_for(settled(), 300.0, horizon=1800.0) is None, "not shortly before the end"


def test_a_settled_size_is_not_left_soon_nor_for_a_finish_time_that_could_not_be_made_anyway() -> (
    None
):
    soon = changed(settled(), waited=2)
    assert size_for(soon, 820.0) is None
    assert size_for(soon, 300.0) is None
    assert size_for(settled(needed=900.0), 950.0) is None


def test_a_raised_maximum_is_used_only_for_a_finish_time_that_the_old_one_would_miss() -> None:
    assert (size_for(changed(settled(needed=900.0), bounded=True), 900.0) or 0) > 8
    assert (
        size_for(changed(settled(needed=900.0), bounded=True), 900.0, bounds=Bounds(1, 8)) is None
    )
    made = changed(settled(), bounded=True)
    assert size_for(made, 700.0) is None
    assert decide(made, inputs(8, until(10.0, 700.0 * 10 * HOUR))).memory.search.settled_size == 8


def test_a_size_measured_as_too_slow_for_a_finish_time_is_not_tried_despite_the_curves() -> None:
    """Five members are slower than four, although the fitted curves say otherwise."""
    objective = until(10.0, 350.0 * 10 * HOUR)
    memory = measured((4, 417.0), (5, 301.0), (8, 775.0))
    at_eight = changed(
        memory, settled=8, reference=775.0, needed=600.0, waited=20, objective=objective.key
    )
    assert decide(at_eight, inputs(8, objective, high=8)).size == 4
    at_five = changed(measured((4, 417.0), (8, 775.0), (5, 301.0)), moves=1)
    left = decide(changed(at_five, objective=objective.key), inputs(5, objective, high=8))
    assert left.size in (4, 8), "a size that makes it is known"
    settled_late = changed(
        at_five, settled=5, reference=301.0, needed=350.0, waited=3, objective=objective.key
    )
    assert decide(settled_late, inputs(5, objective, high=8)).size in (4, 8), (
        "also after it has settled"
    )


def test_a_job_that_got_slower_for_good_does_not_wait_for_hours_when_it_has_to_end() -> None:
    memory = settled()
    for _ in range(3):
        memory = with_measurement(memory, 8, Measurement(500.0))
    assert memory.search.settled_size == 8, "without a finish time, members are kept for six hours"
    decision = decide(memory, inputs(8, until(10.0, 600.0 * 10 * HOUR)))
    assert decision.size == 16, decision.reason
    assert decision.memory.rates.by_size == {8: MeasuredRate(500.0, 3.0)}


@pytest.mark.guarantee("auto-scaling-objectives")
@pytest.mark.parametrize(
    ("wanted", "least", "most"),
    [
        (Objective("Throughput"), 24, 64),
        (Objective("Efficiency", 0.9), 1, 6),
        (Objective("Cost", others=0.0), 1, 6),
        (until(1.0, 1300.0 * HOUR), 20, 32),
        (until(1.0, 300.0 * HOUR), 3, 6),
    ],
)
def test_another_objective_takes_effect_at_once_and_nothing_that_was_measured_is_lost(
    wanted: Objective, least: int, most: int
) -> None:
    curve = saturating(0.02)
    memory = changed(
        measured(*((n, curve(n)) for n in (2, 4, 8, 32, 16))),
        settled=16,
        objective="Efficiency 0.5",
    )
    assert decide(changed(memory, objective=wanted.key), inputs(16, wanted)).size is None
    decision = decide(memory, inputs(16, wanted))
    assert least <= (decision.size or 16) <= most, decision.reason
    assert decision.memory.rates.by_size == memory.rates.by_size
    assert decision.memory.search.objective_key == wanted.key


def test_a_state_that_was_stored_before_there_were_objectives_begins_no_search() -> None:
    memory = changed(settled(), objective="")
    decision = decide(memory, inputs(8, Objective()))
    assert decision.changes_nothing
    assert decision.memory == changed(memory, objective="Efficiency 0.5")


@pytest.mark.guarantee("auto-scaling-objectives")
@pytest.mark.parametrize("off", some_of([-6 * HOUR, 6 * HOUR], first=1))
def test_a_clock_that_is_wrong_for_an_hour_costs_few_plans(off: float) -> None:
    """The finish time seems to be long over, or far away."""
    job = SimulatedJob(
        World("objective", "clock", saturating(0.05), 4),
        objective=Objective("Deadline", finish_at=WALL + 10 * HOUR),
        total=6 * HOUR * 1000.0,
    )
    job.clock_error = lambda now: off if 2 * HOUR < now < 3 * HOUR else 0.0
    outcome = job.run(hours=12.0)
    assert job.now <= 10 * HOUR, outcome
    assert sum(map(len, outcome.plans)) <= 2 * MOST_PLANS, outcome
    assert outcome.most_plans <= MOST_PLANS, outcome


@pytest.mark.guarantee("auto-scaling-objectives")
@pytest.mark.thorough
def test_a_rate_that_comes_and_goes_makes_no_storm_of_plans() -> None:
    world = World(
        "objective",
        "hours",
        saturating(0.05),
        4,
        factor=lambda now: 0.5 if now / HOUR % 2 < 1 else 1.0,
    )
    objective = Objective("Deadline", finish_at=WALL + 12 * HOUR)
    job = SimulatedJob(world, objective=objective, total=9 * HOUR * 0.75 * 1000.0)
    outcome = job.run(hours=12.0)
    assert job.now <= 12 * HOUR, outcome
    assert sum(map(len, outcome.plans)) <= 24, outcome


# --- in every kind of world


@pytest.fixture(
    scope="module",
    # Each objective once, in a kind of world of its own.
    params=some_of([(o, kind) for o in OBJECTIVES for kind in KINDS], every=len(KINDS) + 1),
    ids=str,
)
def met(request: pytest.FixtureRequest) -> tuple[str, str, list[Met]]:
    """Return the results of some jobs with an objective in random worlds of one kind.

    `make simulate` runs many more.
    """
    objective, kind = request.param
    return (
        objective,
        kind,
        [OBJECTIVES[objective](drawn(kind, number)) for number in range(UNSEEN, UNSEEN + 3)],
    )


@pytest.mark.guarantee("auto-scaling-objectives")
def test_in_every_kind_of_world_each_objective_is_met(met: tuple[str, str, list[Met]]) -> None:
    """Three jobs may have one that is not found, as docs/autoscaling.md says.

    The means of many are the bench's.
    """
    objective, _, jobs = met
    least = {"Efficiency": 0.85, "Throughput": 0.85, "Deadline": 0.6, "Cost": 0.65}[objective]
    assert fmean(job.ratio for job in jobs) >= least, "\n".join(str(job.outcome) for job in jobs)


@pytest.mark.guarantee("auto-scaling-objectives")
def test_no_objective_takes_more_than_ten_plans_for_a_search(
    met: tuple[str, str, list[Met]],
) -> None:
    for job in met[2]:
        assert job.outcome.most_plans <= MOST_PLANS, job.outcome
        assert sum(map(len, job.outcome.plans)) <= 2 * MOST_PLANS, job.outcome


@pytest.mark.parametrize("kind", some_of(KINDS, every=3))
def test_a_deadline_that_cannot_be_made_costs_few_plans_in_every_kind_of_world(kind: str) -> None:
    outcome = deadline(drawn(kind, UNSEEN), part=1.5).outcome
    assert sum(map(len, outcome.plans)) <= 2 * MOST_PLANS, outcome


# --- the fields of a job's objective


def test_the_objective_of_a_job() -> None:
    def objective(**wanted: Any) -> Objective:
        roles = {"worker": {"replicas": 4, "template": {}}, "ps": {"replicas": 2, "template": {}}}
        spec = {
            "framework": "tensorflow",
            "replicaSpecs": roles,
            "autoscaling": {"objective": wanted},
        }
        return scaling_spec.objective(
            msgspec.convert({"metadata": {"name": "j"}, "spec": spec}, ElasticJob)
        )

    assert objective() == Objective("Efficiency", 0.5)
    assert objective(minMarginalEfficiency=0.3) == Objective("Efficiency", 0.3)
    assert objective(type="Throughput") == Objective("Throughput")
    assert objective(type="Deadline", finishTime="2026-01-01T12:00:00Z") == Objective(
        "Deadline", finish_at=NOON
    )
    assert objective(type="Cost", prices={"worker": 2.0, "ps": 5.0}) == Objective(
        "Cost", price=2.0, others=10.0
    )


def test_what_is_said_about_times_is_bounded() -> None:
    assert clock_text(1e300) == "9999-12-31T23:59Z"
    far = Objective("Deadline", finish_at=NOON, rest=Rest(1e300, NOON))
    assert meaning_text(far, 1.0, 8).startswith("ends 9999-12-31T23:59Z")
    assert (
        meaning_text(until(10.0, 36_000.0), 1.0, 8)
        == "ends 2026-01-01T22:00Z, 0 min before finishTime"
    )
