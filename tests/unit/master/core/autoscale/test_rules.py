"""The auto-scaler's rules one by one; `test_autoscale_search.py` simulates them together."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from elasticjob_master.cluster.template_resources import (
    training_container_resources,
    with_plan_resources,
)
from elasticjob_master.core.autoscale import pending, resource_rules, scaling_memory
from elasticjob_master.core.autoscale.decide import decide
from elasticjob_master.core.autoscale.decision import (
    Bounds,
    MemberUsage,
    RoleUsage,
    ScalingDecision,
    ScalingInputs,
    candidates,
)
from elasticjob_master.core.autoscale.job_scaling import ContainerResources
from elasticjob_master.core.autoscale.measurement_window import MeasurementWindow
from elasticjob_master.core.autoscale.measurements import (
    Measurement,
    adjusted_to,
    with_measurement,
    with_nodes,
    with_settled,
)
from elasticjob_master.core.autoscale.posterior import fit
from elasticjob_master.core.autoscale.resource_rules import with_peaks
from elasticjob_master.core.autoscale.scaling_memory import (
    FailedTrial,
    MeasuredRate,
    NodeSize,
    RolePeaks,
    ScalingMemory,
    ServerTrial,
)
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS

from tests.support.master.scaling_memories import changed, memory_of

MIB = 1024**2
HUNDRED: Any = pytest.approx(100.0)


def measured(*rates: tuple[int, float], windows: int = 4) -> ScalingMemory:
    """Return a memory with these sizes and rates.

    The last one is the present size, which the auto-scaler did not choose.
    """
    weights = {size: float(windows) for size, _ in rates}
    return memory_of(rates=dict(rates), weights=weights, asked=rates[-1][0])


def scaling_inputs(size: int, low: int = 1, high: int = 64, **more: Any) -> ScalingInputs:
    return dataclasses.replace(
        ScalingInputs(role="worker", size=size, bounds=Bounds(low, high)), **more
    )


# --- members


def test_with_one_size_known_it_tries_more_and_at_the_bound_fewer() -> None:
    grown = decide(measured((4, 400.0)), scaling_inputs(4))
    assert grown.size in range(8, 17)
    assert decide(measured((4, 400.0)), scaling_inputs(4, high=6)).size == 6
    fewer = decide(measured((6, 600.0)), scaling_inputs(6, high=6))
    assert fewer.size in range(2, 6)


@pytest.mark.parametrize(("third", "target"), [(300.0, 5), (210.0, 1)])
def test_two_measured_sizes_decide_both_ways(third: float, target: int) -> None:
    decision = decide(measured((2, 200.0), (3, third)), scaling_inputs(3, high=5))
    assert decision.size == target
    assert "2 members: 200.0 samples/s, 3 members:" in decision.reason


def test_the_reason_contains_the_numbers() -> None:
    reason = decide(measured((2, 200.0), (3, 290.0)), scaling_inputs(3, high=5)).reason
    assert re.fullmatch(
        r"2 members: 200\.0 samples/s, 3 members: 290\.0 samples/s; 5 is better than 3 with a "
        r"likelihood of \d+%, which promises \d+\.\d%: grow to 5, bounded by "
        r"maxReplicas, \d+\.\d samples/s expected",
        reason,
    )


def test_the_best_size_between_two_measured_ones_is_found() -> None:
    """Throughput grows linearly up to 12 members, and smaller sizes have shown the linear part."""
    memory = measured((2, 200.0), (4, 400.0), (8, 800.0), (16, 1200.0), (32, 1200.0))
    decision = decide(changed(memory, moves=4), scaling_inputs(32))
    assert decision.size in range(12, 17)


def test_a_size_is_measured_again_while_it_is_not_clear_what_to_do() -> None:
    memory = changed(measured((4, 400.0), (8, 556.0), windows=1), moves=8)
    first = decide(memory, scaling_inputs(8))
    assert first.changes_nothing
    assert "measuring 8 again" in first.reason


def test_a_rescale_that_does_not_pay_in_the_time_left_is_not_made() -> None:
    memory = changed(measured((4, 400.0)), costs=(60.0,))
    assert decide(memory, scaling_inputs(4, horizon=1200.0)).size is not None
    refused = decide(memory, scaling_inputs(4, horizon=100.0))
    assert refused.changes_nothing
    assert "a rescale costs 60 s" in refused.reason


def test_a_settled_size_stays_and_a_size_set_by_a_user_begins_a_new_search() -> None:
    memory = changed(measured((2, 200.0), (4, 400.0)), settled=4, reference=400.0)
    assert decide(memory, scaling_inputs(4)).changes_nothing
    memory = with_measurement(adjusted_to(memory, size=8, setting=""), 8, Measurement(800.0))
    assert decide(memory, scaling_inputs(8)).size == 32


def test_another_setting_makes_old_rates_worthless() -> None:
    memory = adjusted_to(
        changed(measured((2, 200.0), (4, 210.0)), settled=2), size=4, setting="ps 2 x 8"
    )
    assert memory.rates.by_size == {}
    assert memory.search.settled_size is None


def test_repeated_windows_count_together_and_show_the_noise() -> None:
    memory = ScalingMemory()
    for rate in (90.0, 110.0) * 10:
        memory = with_measurement(memory, 4, Measurement(rate))
    assert memory.rates.mean(4) == pytest.approx(100.0, rel=0.05)
    assert memory.rates.noise == pytest.approx(0.1, rel=0.3)


def test_a_lasting_change_opens_the_question_again_and_a_short_one_does_not() -> None:
    memory = changed(measured((2, 200.0), (4, 400.0)), settled=4, reference=400.0)
    for rate in (*[200.0] * 71, 400.0, *[200.0] * 71):
        memory = with_measurement(memory, 4, Measurement(rate))
    assert memory.search.settled_size == 4
    assert memory.rates.mean(4) == pytest.approx(400.0), "strays are not averaged in"
    memory = with_measurement(memory, 4, Measurement(200.0))
    assert memory.search.settled_size is None
    assert memory.rates.by_size == {4: MeasuredRate(200.0, 72)}


def test_a_throughput_that_changes_again_and_again_is_searched_for_less_and_less_often() -> None:
    memory = changed(measured((4, 400.0)), settled=4, reference=400.0)
    waits = []
    for fast in (True, False, True):
        before = 0
        while memory.search.settled_size is not None:
            memory = with_measurement(memory, 4, Measurement(800.0 if fast else 400.0))
            before += 1
        waits.append(before)
        memory = with_settled(memory, 4)
    assert waits == [6, 144, 24]
    assert (
        with_settled(changed(memory, drifted_from=4, rates={8: 800.0}), 8).search.unchanged_searches
        == 0
    )


@pytest.mark.guarantee("rough-or-changing-throughput")
def test_a_change_during_a_search_begins_another_one_without_earlier_measurements() -> None:
    memory = changed(measured((2, 200.0), (4, 210.0), (2, 200.0)), moves=2)
    memory = with_measurement(memory, 2, Measurement(100.0))
    assert memory.rates.mean(4) == 210.0, "one window may be noise"
    memory = with_measurement(memory, 2, Measurement(100.0))
    assert memory.rates.by_size == {2: MeasuredRate(100.0, 2)}
    assert memory.search.plans == 0


def test_a_slow_trend_is_followed_and_opens_no_question() -> None:
    memory = changed(measured((2, 200.0), (4, 400.0)), settled=4, reference=400.0)
    for window in range(10):
        memory = with_measurement(memory, 4, Measurement(400.0 * 1.025**window))
    assert memory.search.settled_size == 4
    assert memory.rates.strays == ()


# --- before the end of a window


def early(memory: ScalingMemory, size: int, part: float, **more: Any) -> ScalingDecision:
    """Return the decision when only a part of a window has been measured at this size."""
    weights = {n: rate.weight for n, rate in memory.rates.by_size.items()}
    memory = changed(memory, weights={**weights, size: part})
    return decide(memory, scaling_inputs(size, window_is_over=False, **more))


def test_a_measured_gain_that_is_clear_is_followed_before_the_window_is_over() -> None:
    memory = changed(measured((4, 400.0), (8, 790.0)), moves=1)
    assert early(memory, 8, 0.2).size == 32


def test_fewer_members_are_not_tried_where_going_and_returning_costs_much_of_the_time_left() -> (
    None
):
    memory = measured((6, 600.0), windows=6)
    decision = decide(memory, scaling_inputs(6, high=6, horizon=300.0))
    assert decision.changes_nothing
    assert "save less in the 300 s left" in decision.reason


def test_a_size_that_is_slower_than_a_measured_one_is_left_also_near_the_end() -> None:
    memory = changed(measured((3, 7000.0), (5, 2000.0)), moves=1, costs=(8.0,))
    left = decide(memory, scaling_inputs(5, high=5, horizon=200.0)).size
    assert left is not None
    assert left < 5
    assert decide(memory, scaling_inputs(5, high=5, horizon=10.0)).changes_nothing


def test_a_clearly_poorer_step_is_left_before_the_window_is_over() -> None:
    memory = changed(measured((4, 400.0), (8, 420.0)), moves=1)
    left = early(memory, 8, 0.8)
    assert left.size is not None
    assert left.size < 8


def test_a_step_that_may_be_poor_is_not_judged_before_the_window_is_over() -> None:
    memory = changed(measured((4, 400.0), (8, 540.0)), moves=8)
    assert early(memory, 8, 0.2).changes_nothing
    assert decide(memory, scaling_inputs(8)).size == 4


def test_a_step_from_a_single_member_does_not_end_the_search() -> None:
    memory = changed(measured((1, 100.0), (2, 90.0)), moves=1)
    assert decide(memory, scaling_inputs(2)).size in range(3, 9)


def test_sizes_are_multiples_where_that_is_asked_for() -> None:
    bounds = Bounds(4, 60, multiple_of=4)
    inputs = dataclasses.replace(scaling_inputs(12), bounds=bounds)
    grown = decide(measured((12, 400.0)), inputs).size
    assert grown is not None
    assert grown % 4 == 0
    memory = changed(measured((12, 400.0), (24, 700.0), (48, 720.0)), moves=2)
    decision = decide(memory, dataclasses.replace(inputs, size=48))
    assert decision.size is not None
    assert decision.size % 4 == 0


@pytest.mark.parametrize("multiple", [1, 4, 6])
def test_the_sizes_that_are_thought_of_are_round_and_allowed(multiple: int) -> None:
    bounds = Bounds(multiple, 60, multiple_of=multiple)
    sizes = candidates(bounds, 7, [9, 24, 99])
    assert {multiple, 2 * multiple, 4 * multiple, 7, 24, 60} <= set(sizes)
    assert all(size % multiple == 0 and size <= 60 for size in sizes if size != 7)
    assert len(candidates(Bounds(1, 100_000), 7)) < 80


@pytest.mark.guarantee("rough-or-changing-throughput")
def test_it_goes_back_to_a_size_that_was_clearly_better_than_where_it_would_settle() -> None:
    """A node boundary: a size between 8 and 16 is worse than both."""
    rates = ((2, 200.0), (4, 400.0), (8, 780.0), (16, 900.0), (12, 587.0))
    memory = changed(measured(*rates, windows=6), moves=8)
    decision = decide(memory, scaling_inputs(12))
    assert decision.size == 8
    assert "back to 8, the best that was measured" in decision.reason


def test_the_number_of_remembered_sizes_is_bounded() -> None:
    memory = ScalingMemory()
    for size in range(1, 3 * THRESHOLDS.stored):
        memory = with_measurement(memory, size, Measurement(1.0))
    assert len(memory.rates.by_size) == THRESHOLDS.stored
    assert min(memory.rates.by_size) == 2 * THRESHOLDS.stored


def test_a_fit_through_amdahls_law_knows_it() -> None:
    rates = {n: MeasuredRate(100.0 * n / (1 + 0.05 * (n - 1)), 8) for n in (1, 2, 4, 8, 16)}
    found = fit(rates, 0.01, [32])
    assert found.rate(32) == pytest.approx(100.0 * 32 / (1 + 0.05 * 31), rel=0.08)


def test_a_measurement_overrules_the_curve_at_its_size_and_not_far_from_it() -> None:
    rates = {n: MeasuredRate(100.0 * n, 8) for n in (1, 2, 4, 8)}
    found = fit({**rates, 6: MeasuredRate(300.0, 8)}, 0.01, [6, 8, 16])
    assert found.rate(6) == pytest.approx(300.0, rel=0.05)
    assert found.rate(16) > 1000.0


@pytest.mark.parametrize(
    ("worlds", "node"),
    [
        ([], (0, False)),
        ([["", "a"]], (0, False)),
        ([["a", "a", "a"]], (3, False)),
        ([["a"] * 4 + ["b"]], (4, True)),
        ([["a"] * 4 + ["b"], ["a", "a", "b"]], (4, True)),
        ([["a"] * 4 + ["b"], ["a"] * 6], (6, False)),
    ],
)
def test_where_nodes_end_is_learned_from_the_pods(
    worlds: list[list[str]], node: tuple[int, bool]
) -> None:
    memory = ScalingMemory()
    for names in worlds:
        memory = with_nodes(memory, names)
    assert memory.rates.node == NodeSize(*node)
    assert scaling_memory.restored(scaling_memory.stored(memory)) == memory


def test_a_loss_at_the_end_of_a_node_is_expected_at_no_other_size() -> None:
    rates = {1: MeasuredRate(100.0, 4), 2: MeasuredRate(196.0, 4), 5: MeasuredRate(250.0, 4)}
    of_two, of_four = (
        fit(rates, 0.02, [3, 4], NodeSize(members, is_full=True)) for members in (2, 4)
    )
    assert of_four.rate(4) > 1.1 * of_two.rate(4)


def test_a_measured_size_is_known_better_than_one_that_is_not() -> None:
    found = fit({n: MeasuredRate(100.0 * n, 4) for n in (2, 4)}, 0.02, [4, 6, 32])
    widths = {n: high / low for n in (4, 6, 32) for low, high in [found.band(n, 0.05, 0.95)]}
    assert widths[4] < widths[6] < widths[32]


# --- windows


def test_a_size_is_measured_only_when_reached_and_after_its_first_steps() -> None:
    window = MeasurementWindow()

    def observe(
        now: float, samples: float, size: int = 2, world_round: int = 1
    ) -> Measurement | None:
        window.record_samples(world_round=world_round, samples=samples, step=0, now=now)
        return window.observe(size=size, cooldown=10.0, now=now)

    assert observe(0.0, 0.0) is None
    assert observe(2.0, 5.0) is None  # the slow beginning is not counted
    assert observe(9.9, 700.0) is None
    found = observe(10.0, 805.0)
    assert found is not None
    assert found.rate == HUNDRED
    assert observe(19.0, 1_705.0) is None
    found = observe(20.0, 1_805.0)
    assert found is not None
    assert found.rate == HUNDRED  # the next window
    assert observe(21.0, 1_905.0, world_round=2) is None
    window.restart()
    assert observe(40.0, 2_000.0, world_round=2) is None


def test_a_rate_is_measured_from_one_report_to_another() -> None:
    """Steps take 7 s, so a window holds no whole number of them."""
    window = MeasurementWindow()
    rates = []
    for second in range(100):
        window.record_samples(
            world_round=1, samples=700.0 * (second // 7), step=second // 7, now=float(second)
        )
        found = window.observe(size=2, cooldown=20.0, now=float(second))
        rates += [found.rate] if found is not None else []
    assert rates == [HUNDRED] * 4


def test_a_part_of_a_window_says_nothing_before_many_steps_are_done() -> None:
    """Four members report their part of each step of 30 s one after the other."""
    window = MeasurementWindow()
    for second in range(290):
        step = second // 30
        reported = min(3, second % 30)
        window.record_samples(
            world_round=1, samples=400.0 * step + 100.0 * reported, step=step, now=float(second)
        )
        window.observe(size=4, cooldown=300.0, now=float(second))
        assert window.measured_so_far(cooldown=300.0) is None


def test_a_window_measures_a_part_and_shows_how_much_the_rate_varies() -> None:
    window = MeasurementWindow()
    samples = 0.0
    for second in range(161):
        samples += 80.0 if second // 20 % 2 else 120.0
        window.record_samples(world_round=1, samples=samples, step=second, now=float(second))
        window.observe(size=2, cooldown=300.0, now=float(second))
        found = window.measured_so_far(cooldown=300.0)
        assert (found is None) == (second < 60 + 40), "a part of it, after the warm-up"
    assert found is not None
    assert found.rate == pytest.approx(100.0, rel=0.05)
    assert found.part == pytest.approx(1 / 3, abs=0.01)
    assert found.spread == pytest.approx(0.14, abs=0.03)
    noisy = with_measurement(ScalingMemory(), 2, found)
    assert noisy.rates.noise > ScalingMemory().rates.noise


def test_a_cooldown_that_is_made_shorter_is_measured_from_then_on() -> None:
    window = MeasurementWindow()

    def observe(now: int, cooldown: float) -> Measurement | None:
        window.record_samples(world_round=1, samples=100.0 * now, step=now, now=float(now))
        return window.observe(size=2, cooldown=cooldown, now=float(now))

    assert [observe(now, 300.0) for now in range(50)] == [None] * 50
    found = [observe(now, 10.0) for now in range(50, 65)]
    assert [each.rate for each in found if each is not None] == [HUNDRED] * 2


def test_the_cost_of_a_rescale_is_the_time_in_which_the_new_rate_was_not_reached() -> None:
    window = MeasurementWindow()
    found = []
    for second in range(60):
        # 100 samples/s up to second 20, nothing for 8 seconds, then 200 samples/s.
        samples = 100.0 * min(second, 20) + 200.0 * max(0, second - 28)
        window.record_samples(
            world_round=1 if second <= 20 else 2, samples=samples, step=second, now=float(second)
        )
        if second <= 20 or second >= 28:
            size = 2 if second <= 20 else 4
            found.append(window.observe(size=size, cooldown=10.0, now=float(second)))
    costs = [each.rescale_seconds for each in found if each is not None]
    assert costs == [None, None, pytest.approx(8.0), None, None]


# --- pods that cannot be had


def test_after_a_plan_that_was_not_fulfilled_growth_is_tried_again_after_a_growing_pause() -> None:
    memory = measured((4, 400.0))
    pauses = []
    wall = 1_000.0
    for _ in range(8):
        memory = pending.after_unfulfilled_plan(memory, 4, wall)
        waiting = decide(memory, scaling_inputs(4, wall=wall + memory.plans.pause_seconds - 1))
        assert waiting.changes_nothing
        assert "no more than 4 pods were available" in waiting.reason
        pauses.append(memory.plans.pause_seconds)
        wall = memory.plans.retry_at
        again = decide(memory, scaling_inputs(4, wall=wall))
        assert again.size is not None
        assert again.size > 4
        memory = again.memory
    assert pauses[:3] == [900.0, 1800.0, 3600.0]
    assert pauses[-1] == 32 * 900.0
    assert pending.after_fulfilled_plan(memory, 8).plans.reached_size is None


def test_members_that_stay_missing_are_given_up_by_index_down_to_the_minimum() -> None:
    decision = pending.fall_back(
        memory_of(asked=8), {1, 5, 6}, size=8, bounds=Bounds(2, 64), wall=0.0
    )
    assert decision is not None
    assert decision.remove == (1, 5, 6)
    assert decision.memory.search.requested_size == 5
    assert (
        "3 of 8 members have been missing for 900 s (index 1, 5, 6): fall back to 5"
        in decision.reason
    )
    assert pending.fall_back(ScalingMemory(), {1}, size=2, bounds=Bounds(2, 64), wall=0.0) is None


# --- CPU and memory


def used(memory: int, limit: int, tight: float, **more: float) -> RoleUsage:
    use = MemberUsage(
        "job-worker-0", memory=memory * MIB, memory_limit=limit * MIB, near_limit=tight, **more
    )
    return RoleUsage((use,) * 4, most_memory=4096 * MIB)


def resources(role: RoleUsage, **more: Any) -> ScalingDecision:
    memory = measured((2, 200.0), (4, 400.0))
    return decide(memory, scaling_inputs(4, roles={"worker": role}, **more))


@pytest.mark.guarantee("uncounted-failures")
def test_memory_that_is_nearly_used_up_for_most_of_the_time_grows_before_a_member_is_killed() -> (
    None
):
    decision = resources(used(950, 1024, 0.8))
    assert decision.resources == {"worker": {"memory": 1472 * MIB}}
    assert "job-worker-0 uses 950 MiB of its 1024 MiB memory" in decision.reason
    assert not resources(used(950, 1024, 0.2)).resources, "a short peak is no reason"


def test_memory_grows_no_further_than_max_memory_and_resource_limits() -> None:
    assert resources(used(3800, 4000, 1.0)).resources == {}, "4096 MiB would be no help"
    bounded = resources(used(950, 1024, 1.0), free_resources={"memory": 4.0 * 256 * MIB})
    assert bounded.resources == {"worker": {"memory": 1280 * MIB}}
    assert "allow no more" in bounded.reason


HOUR = 3600.0
PEAKS = RolePeaks(cpu=0.5, memory=200 * MIB, since=0.0)


def lowered(
    role: RoleUsage, peaks: RolePeaks = PEAKS, *, settled: bool = True, **more: Any
) -> ScalingDecision:
    """Return the decision about a role with known peaks, an hour after its first observation."""
    memory = changed(measured((2, 200.0), (4, 400.0)), peaks={"worker": peaks})
    memory = changed(memory, settled=4, reference=400.0) if settled else memory
    return decide(memory, scaling_inputs(4, roles={"worker": role}, **{"wall": HOUR, **more}))


def test_unused_resources_are_released_after_the_size_has_settled_if_it_pays() -> None:
    roomy = used(200, 4096, 0.0, cpu_peak=0.5, cpu_request=4.0)
    assert lowered(roomy, settled=False).resources == {}
    short = lowered(roomy, horizon=2_000.0)
    assert short.resources == {}, (
        "where it cannot be done in place, it would cost two minutes of these"
    )
    assert lowered(roomy, wall=HOUR - 1).resources == {}, "too little is known"
    decision = lowered(roomy)
    assert decision.resources == {"worker": {"cpu": 2.0}}, "half of it, as nobody is in a hurry"
    after = decision.memory.resources.peaks["worker"]
    assert (after.before_lowering, after.lowered_at) == ((4.0, 4096 * MIB), HOUR)
    half = used(200, 2048, 0.0, cpu_peak=0.5, cpu_request=2.0)
    assert lowered(half, after, wall=2 * HOUR - 1).resources == {}, (
        "the last lowering has to prove itself first"
    )
    again = lowered(half, after, wall=2 * HOUR)
    assert again.resources == {"worker": {"cpu": 1.0}}
    assert again.memory.resources.peaks["worker"].before_lowering == (4.0, 4096 * MIB)
    fitting = used(200, 448, 0.0, cpu_peak=0.5, cpu_request=0.8)
    assert lowered(fitting).changes_nothing
    assert lowered(fitting, wall=100 * HOUR).changes_nothing


def members_with(*limits: int, memory: int = 200) -> RoleUsage:
    uses = [
        MemberUsage(f"job-worker-{n}", memory=memory * MIB, memory_limit=limit * MIB)
        for n, limit in enumerate(limits)
    ]
    return RoleUsage(tuple(uses))


@pytest.mark.guarantee("resources-changed-in-place")
def test_memory_is_lowered_for_one_member_first_and_after_as_long_for_the_others() -> None:
    every = members_with(4096, 4096, 4096)
    assert lowered(every, wall=6 * HOUR - 1).changes_nothing
    first = lowered(every, wall=6 * HOUR)
    assert (first.migrate, first.resources) == ({"job-worker-2": {"memory": 2048 * MIB}}, {})
    peaks = first.memory.resources.peaks["worker"]
    tried = members_with(4096, 4096, 2048)
    assert lowered(tried, peaks, wall=12 * HOUR - 1).changes_nothing
    rest = lowered(tried, peaks, wall=12 * HOUR)
    assert (rest.migrate, rest.resources) == ({}, {"worker": {"memory": 2048 * MIB}})
    killed = members_with(4096, 4096, 4096)
    assert lowered(killed, peaks, wall=100 * HOUR).changes_nothing, "it needed more"
    alone = lowered(members_with(4096), wall=6 * HOUR)
    assert alone.resources == {"worker": {"memory": 2048 * MIB}}


@pytest.mark.guarantee("resources-changed-in-place")
@pytest.mark.parametrize("minutes", [90, 120, 150, 180])
def test_an_evaluation_that_comes_seldom_kills_no_member(minutes: int) -> None:
    memory = changed(measured((4, 400.0)), settled=4, reference=400.0)
    for minute in range(5, 48 * 60, 5):
        part = 0.7 if minute % minutes == 0 else 0.2
        wall = 60.0 * minute
        used = int(part * 4096)
        memory = with_peaks(memory, "worker", cpu=0.0, used=used * MIB, wall=wall, size=4)
        role = members_with(4096, 4096, 4096, 4096, memory=used)
        inputs = scaling_inputs(4, high=4, roles={"worker": role}, wall=wall)
        decision = decide(memory, inputs)
        assert decision.changes_nothing, (minute, decision.reason)
        memory = decision.memory


def test_a_late_phase_makes_the_wait_for_less_memory_longer() -> None:
    peaks = RolePeaks(memory=200 * MIB, since=0.0, grown_at=3 * HOUR)
    role = members_with(4096, 4096)
    assert lowered(role, peaks, wall=18 * HOUR - 1).changes_nothing
    assert lowered(role, peaks, wall=18 * HOUR).migrate


@pytest.mark.guarantee("uncounted-failures")
def test_a_job_whose_members_divide_a_state_shrinks_only_as_far_as_it_fits() -> None:
    """40 GiB are divided among the members, and each may have 8 GiB."""
    gib = 1024 * MIB
    memory = measured((8, 400.0), (16, 400.0), windows=6)
    role = members_with(*[8192] * 16, memory=2560)
    inputs = scaling_inputs(16, roles={"worker": role}, high=16)
    assert (decide(memory, inputs).size or 16) < 6, "without a look at memory"
    for size in (8, 16):
        used = 40 * gib // size
        memory = with_peaks(memory, "worker", cpu=0.0, used=used, wall=0.0, size=size)
    assert decide(memory, inputs).size in (6, 7, 8)
    whole = measured((8, 400.0), (16, 400.0), windows=6)
    for size in (8, 16):
        whole = with_peaks(whole, "worker", cpu=0.0, used=5 * gib, wall=0.0, size=size)
    assert (decide(whole, inputs).size or 16) < 6, "each member has all of the state"
    one = with_peaks(measured((16, 400.0)), "worker", cpu=0.0, used=7 * gib, wall=0.0, size=16)
    assert decide(one, inputs).size is None, "12 members may need 9.3 GiB each"


def test_what_a_role_has_once_needed_is_not_taken_away() -> None:
    quiet = used(1600, 8192, 0.0, cpu_peak=0.8, cpu_request=8.0)
    peaks = RolePeaks(cpu=0.8, memory=1600 * MIB, since=0.0)
    assert lowered(quiet, peaks).resources == {"worker": {"cpu": 4.0}}
    with_phase = with_peaks(
        memory_of(peaks={"worker": peaks}), "worker", cpu=6.0, used=5700 * MIB, wall=1800.0
    )
    late = lowered(quiet, with_phase.resources.peaks["worker"], wall=100 * HOUR)
    assert late.changes_nothing
    quiet_again = with_peaks(with_phase, "worker", cpu=0.8, used=1600 * MIB, wall=3600.0)
    assert quiet_again is with_phase


@pytest.mark.guarantee("resources-changed-in-place")
@pytest.mark.parametrize(
    "needs", [{"memory": 3800, "cpu_peak": 0.5}, {"memory": 1600, "cpu_peak": 3.7}]
)
def test_what_was_lowered_comes_back_as_soon_as_it_is_needed_and_is_not_lowered_again(
    needs: dict[str, float],
) -> None:
    peaks = RolePeaks(
        cpu=0.8, memory=1600 * MIB, since=0.0, lowered_at=HOUR, before_lowering=(8.0, 8192 * MIB)
    )
    role = used(int(needs["memory"]), 4096, 0.1, cpu_peak=needs["cpu_peak"], cpu_request=4.0)
    decision = lowered(role, peaks, wall=HOUR + 300)
    assert decision.resources == {"worker": {"cpu": 8.0, "memory": 8192 * MIB}}
    assert (
        "worker was lowered, and job-worker-0 uses nearly all that is left: back to 8 cores"
        in decision.reason
    )
    after = decision.memory.resources.peaks["worker"]
    assert (after.before_lowering, after.keeps_resources) == (None, True)
    quiet = used(1600, 8192, 0.0, cpu_peak=0.8, cpu_request=8.0)
    assert lowered(quiet, after, wall=100 * HOUR).resources == {}
    some = lowered(
        role, peaks, wall=HOUR + 300, free_resources={"cpu": 4.0, "memory": 4.0 * 1024 * MIB}
    )
    assert some.resources == {"worker": {"cpu": 5.0, "memory": 5120 * MIB}}, (
        "as much as resourceLimits leave"
    )


@pytest.mark.guarantee("resources-changed-in-place")
def test_a_member_that_was_killed_for_lack_of_memory_ends_all_lowering_of_its_role() -> None:
    peaks = RolePeaks(
        cpu=0.8, memory=1600 * MIB, since=0.0, lowered_at=HOUR, before_lowering=(8.0, 8192 * MIB)
    )
    low, grown = (
        MemberUsage(
            f"job-worker-{index}",
            memory=1600 * MIB,
            memory_limit=limit * MIB,
            cpu_peak=0.8,
            cpu_request=4.0,
        )
        for index, limit in enumerate((4096, 6553))
    )
    killed = RoleUsage((low, grown), most_memory=64 * 1024 * MIB, own_memory=True)
    decision = lowered(killed, peaks, wall=HOUR + 300)
    assert decision.resources == {"worker": {"cpu": 8.0, "memory": 8192 * MIB}}
    assert decision.memory.resources.peaks["worker"].keeps_resources
    untouched = RolePeaks(cpu=0.8, memory=1600 * MIB, since=0.0)
    kept = lowered(killed, untouched)
    assert "memory" not in kept.resources.get("worker", {}), (
        "the one that was killed needed its own memory"
    )


def test_after_a_failed_plan_for_resources_none_is_made_for_an_hour() -> None:
    memory = pending.after_failed_resource_plan(measured((2, 200.0), (4, 400.0)), 1_000.0)
    roles = {"worker": used(950, 1024, 0.8)}
    assert not decide(memory, scaling_inputs(4, roles=roles, wall=4_599.0)).resources
    assert decide(memory, scaling_inputs(4, roles=roles, wall=4_600.0)).resources


def test_the_share_is_that_of_the_container_that_trains() -> None:
    def template(**resources: dict[str, str]) -> dict[str, object]:
        return {
            "spec": {
                "containers": [{"resources": resources}, {"resources": {"requests": {"cpu": "9"}}}]
            }
        }

    assert training_container_resources(
        template(requests={"cpu": "500m", "memory": "1Gi"})
    ) == ContainerResources(0.5, 1024 * MIB)
    assert training_container_resources(
        template(limits={"cpu": "2", "memory": "1Gi"})
    ) == ContainerResources(2.0, 1024 * MIB)
    assert training_container_resources(
        template(requests={"memory": "1Gi"}, limits={"memory": "2Gi"})
    ) == ContainerResources(None, 2048 * MIB)
    assert training_container_resources({}) == ContainerResources()
    assert with_plan_resources(
        training_container_resources(template()), {"cpu": 3}
    ) == ContainerResources(3.0, None)


# --- parameter servers


def served(*loads: float, **more: Any) -> ScalingInputs:
    uses = tuple(
        MemberUsage(f"job-ps-{n}", cpu=4.0 * load, cpu_request=4.0) for n, load in enumerate(loads)
    )
    return scaling_inputs(4, roles={"ps": RoleUsage(uses)}, servers=("ps",), **more)


def test_when_all_servers_are_hot_the_role_gets_more_cpu_and_a_single_hot_one_is_migrated() -> None:
    memory = measured((2, 200.0), (4, 390.0))
    every = decide(memory, served(0.95, 0.92))
    assert every.resources == {"ps": {"cpu": 8.0}}
    assert (
        "job-ps-0 uses 3.8 of its 4 cores (95%) with 4 members of worker (390.0 samples/s)"
        in every.reason
    )
    single = decide(memory, served(0.5, 0.92))
    assert single.migrate == {"job-ps-1": {"cpu": 8.0}}


def test_hot_servers_that_can_get_no_more_cpu_bound_no_workers() -> None:
    decision = decide(
        measured((2, 200.0), (4, 390.0)), served(0.95, 0.92, free_resources={"cpu": 0.5})
    )
    assert decision.size == 16, "the workers' throughput is measured anyway"


RELIEVED = ServerTrial(role="ps", size=4, rate=380.0, cores_before=2.0)


@pytest.mark.guarantee("fruitless-resources-are-taken-back")
def test_cpu_that_did_not_help_is_removed_and_not_added_again_at_this_size() -> None:
    memory = changed(measured((2, 200.0), (4, 390.0)), relief=RELIEVED, setting="ps 2 x 4")
    decision = decide(memory, served(0.95, 0.95, setting="ps 2 x 4"))
    assert decision.resources == {"ps": {"cpu": 2.0}}
    assert "380.0 samples/s before ps got more CPU, 390.0 since: it did not help" in decision.reason
    after = adjusted_to(decision.memory, size=4, setting="ps 2 x 2")
    assert after.rates.by_size == memory.rates.by_size, "the rates hold with and without it"
    for size in (4, 5):
        inputs = dataclasses.replace(served(0.97, 0.97, setting="ps 2 x 2"), size=size)
        assert not decide(measured_at(after, size), inputs).resources
    larger = dataclasses.replace(served(0.97, 0.97, setting="ps 2 x 2"), size=8)
    assert decide(measured_at(after, 8), larger).resources == {"ps": {"cpu": 8.0}}, (
        "twice as many workers are another question"
    )


@pytest.mark.guarantee("fruitless-resources-are-taken-back")
def test_cpu_that_helped_one_server_stays_when_that_of_another_is_removed() -> None:
    def servers(cores: float, name: str = "job-ps-1") -> ScalingInputs:
        uses = (
            MemberUsage("job-ps-0", cpu=8.0, cpu_request=16.0),
            MemberUsage(name, cpu=0.97 * cores, cpu_request=cores),
        )
        return scaling_inputs(4, roles={"ps": RoleUsage(uses)}, servers=("ps",), setting="s")

    memory = changed(measured((2, 200.0), (4, 390.0)), setting="s")
    raised = decide(memory, servers(2.0))
    assert raised.migrate == {"job-ps-1": {"cpu": 4.0}}
    taken_back = decide(raised.memory, servers(4.0, "job-ps-2"))
    assert taken_back.migrate == {"job-ps-2": {"cpu": 2.0}}, "the replacement has another name"
    assert taken_back.resources == {}


def test_servers_get_no_more_cpu_than_a_node_has() -> None:
    memory = measured((2, 200.0), (4, 390.0))

    def servers(node: float) -> ScalingInputs:
        use = MemberUsage("job-ps-0", cpu=3.9, cpu_request=4.0, node_cores=node)
        return scaling_inputs(4, roles={"ps": RoleUsage((use,))}, servers=("ps",))

    assert decide(memory, servers(6.0)).resources == {"ps": {"cpu": 6.0}}
    assert decide(memory, servers(4.0)).size == 16


@pytest.mark.parametrize(("cores", "helped"), [(2.0, True), (16.0, False)])
def test_more_cpu_must_help_as_much_as_the_objective_requires_of_as_many_members(
    cores: float, helped: bool
) -> None:
    trial = ServerTrial("ps", 4, 330.0, cores, cores_given=2 * cores)
    server = MemberUsage("job-ps-0", cpu=2 * cores, cpu_request=2 * cores)
    workers = (MemberUsage("job-worker-0", cpu=3.0, cpu_request=4.0),) * 4
    inputs = scaling_inputs(
        4, roles={"ps": RoleUsage((server,)), "worker": RoleUsage(workers)}, servers=("ps",)
    )
    memory = changed(measured((2, 200.0), (4, 380.0)), relief=trial)
    decision = decide(memory, inputs)
    if helped:
        assert decision.resources != {"ps": {"cpu": cores}}
    else:
        assert decision.resources == {"ps": {"cpu": cores}}
        assert "it did not help enough, as 22% more would be worth so many cores" in decision.reason


def measured_at(memory: ScalingMemory, size: int) -> ScalingMemory:
    return with_measurement(changed(memory, asked=size), size, Measurement(390.0))


def test_cpu_that_helped_stays_and_a_new_search_begins() -> None:
    memory = changed(measured((2, 200.0), (4, 500.0)), relief=RELIEVED, setting="ps 2 x 4")
    decision = decide(memory, served(0.7, 0.7, setting="ps 2 x 4"))
    assert decision.size == 16
    assert decision.memory.servers.trial is None
    assert list(decision.memory.rates.by_size) == [4]
    assert decision.memory.servers.failed_cpu == {}


def test_what_came_of_more_cpu_is_measured_before_anything_else_is_tried() -> None:
    memory = changed(measured((2, 200.0), (4, 390.0)), relief=RELIEVED, setting="ps 2 x 2")
    memory = adjusted_to(memory, size=4, setting="ps 2 x 4")
    assert list(memory.rates.by_size) == [2]
    memory = with_measurement(memory, 4, Measurement(500.0))
    waiting = decide(memory, served(0.7, 0.7, setting="ps 2 x 4"))
    assert waiting.changes_nothing
    assert "measuring 4 again" in waiting.reason


def crowded(*loads: float, most: int = 4, **more: Any) -> ScalingInputs:
    """Return inputs with at most `most` servers, which can get no more CPU."""
    given = {
        "server_counts": {"ps": len(loads)},
        "most_servers": {"ps": most},
        "free_resources": {"cpu": 0.0},
        **more,
    }
    return served(*loads, **given)


def test_hot_servers_that_can_get_no_more_cpu_become_twice_as_many_where_they_may() -> None:
    memory = measured((2, 200.0), (4, 390.0))
    decision = decide(memory, crowded(0.95, 0.92))
    assert (decision.servers, decision.size, decision.resources) == ({"ps": 4}, None, {})
    assert (
        "every ps uses at least 92% of its CPU with 4 members of worker (390.0 samples/s)"
        in decision.reason
    )
    assert "no more CPU is available: 4 of them instead of 2" in decision.reason
    assert decide(memory, crowded(0.95, 0.92, most=3)).servers == {"ps": 3}
    assert decide(memory, crowded(0.95, 0.92, most=2)).size == 16
    assert decide(memory, crowded(0.95, 0.5)).size == 16, "one hot server is not too few servers"
    assert decide(memory, crowded(0.95, 0.92, free_resources={"cpu": 16.0})).resources == {
        "ps": {"cpu": 8.0}
    }
    failed = changed(memory, failed_cpu={"ps": FailedTrial(4, 390.0)})
    assert decide(failed, crowded(0.95, 0.92, free_resources={"cpu": 16.0})).servers == {"ps": 4}


MORE = ServerTrial(role="ps", size=4, rate=380.0, cores_before=4.0, servers_before=2)


def test_servers_that_have_not_helped_are_removed_and_not_added_again() -> None:
    memory = changed(measured((2, 200.0), (4, 390.0)), relief=MORE, setting="ps 4 x 16")
    decision = decide(memory, crowded(0.95, 0.95, 0.95, 0.95, most=8, setting="ps 4 x 16"))
    assert (decision.servers, decision.resources) == ({"ps": 2}, {})
    assert (
        "380.0 samples/s before ps got more members, 390.0 since: it did not help; back to 2"
        in decision.reason
    )
    after = adjusted_to(decision.memory, size=4, setting="ps 2 x 8")
    assert after.rates.by_size == memory.rates.by_size, "the rates hold with and without them"
    for size in (4, 5):
        again = crowded(0.97, 0.97, most=8, setting="ps 2 x 8")
        again = dataclasses.replace(again, size=size)
        assert not decide(measured_at(after, size), again).servers


def test_servers_that_helped_stay_and_servers_removed_by_a_user_are_not_removed_again() -> None:
    helped = changed(measured((2, 200.0), (4, 500.0)), relief=MORE, setting="ps 4 x 16")
    decision = decide(helped, crowded(0.7, 0.7, 0.7, 0.7, setting="ps 4 x 16"))
    assert (decision.size, decision.servers, list(decision.memory.rates.by_size)) == (16, {}, [4])
    gone = changed(measured((2, 200.0), (4, 390.0)), relief=MORE, setting="ps 2 x 8")
    assert not decide(gone, crowded(0.7, 0.7, setting="ps 2 x 8")).servers


@pytest.mark.guarantee("fruitless-resources-are-taken-back")
def test_a_program_that_fills_any_memory_gets_more_only_once() -> None:
    memory = measured((2, 200.0), (4, 400.0))
    first = decide(memory, scaling_inputs(4, roles={"worker": used(950, 1024, 1.0)}))
    given = int(first.resources["worker"]["memory"]) // MIB
    filled = decide(
        first.memory, scaling_inputs(4, roles={"worker": used(int(0.95 * given), given, 1.0)})
    )
    assert not filled.resources
    assert filled.memory.resources.peaks["worker"].fills_memory
    later = decide(
        filled.memory, scaling_inputs(4, roles={"worker": used(int(0.95 * given), given, 1.0)})
    )
    assert not later.resources


def test_a_program_that_grows_slowly_gets_more_memory_again() -> None:
    memory = measured((2, 200.0), (4, 400.0))
    first = decide(memory, scaling_inputs(4, roles={"worker": used(950, 1024, 1.0)}))
    given = int(first.resources["worker"]["memory"]) // MIB
    roomy = decide(first.memory, scaling_inputs(4, roles={"worker": used(960, given, 0.0)}))
    again = decide(
        roomy.memory, scaling_inputs(4, roles={"worker": used(int(0.95 * given), given, 1.0)})
    )
    assert again.resources["worker"]["memory"] > given * MIB


def test_idle_servers_change_nothing() -> None:
    assert decide(measured((2, 200.0), (4, 390.0)), served(0.5, 0.4)).size == 16
    assert resource_rules.lower_requests(measured((4, 400.0)), served(0.5)) is None


# --- stored state


def test_a_state_of_an_earlier_version_is_read_and_stored_under_the_same_names() -> None:
    stored = Path(__file__).parents[2] / "persistence" / "stored_state.json"
    flat = json.loads(stored.read_bytes())["memory"]
    memory = scaling_memory.restored(flat)
    assert memory.rates.by_size == {
        4: MeasuredRate(400.0, 3.0, 1000.0),
        2: MeasuredRate(200.0, 1.0, 900.0),
    }
    assert list(memory.rates.by_size) == [4, 2], "the size measured last comes last"
    assert memory.search.requested_size == 4
    assert memory.plans.last_ended == 5
    assert memory.servers.trial == ServerTrial("ps", 4, 380.0, 2.0)
    assert memory.resources.peaks["worker"].before_lowering == (4.0, 2 * 1024 * MIB)
    # A verdict without the size that it was found at, and two former ones of the search.
    for former in ("useless", "heading", "turned"):
        del flat[former]
    assert json.loads(json.dumps(scaling_memory.stored(memory))) == flat


def test_a_state_without_most_fields_or_with_former_ones_is_read() -> None:
    old = scaling_memory.restored({"rates": {"2": 200.0}, "asked": 2, "fresh": True})
    assert old == memory_of(rates={2: 200.0}, asked=2)
    assert old.rates.by_size[2] == MeasuredRate(200.0)
    assert scaling_memory.restored({}) == ScalingMemory()


def test_all_parts_of_the_memory_come_back_as_they_were() -> None:
    peaks = RolePeaks(memory=5, memory_by_size={2: 5, 4: 3})
    memory = measured((2, 200.0)).with_peaks("worker", peaks)
    assert scaling_memory.restored(json.loads(json.dumps(scaling_memory.stored(memory)))) == memory


@pytest.mark.parametrize(
    "damaged", [{"rates": 5}, {"rates": {"x": 1.0}}, {"asked": "4"}, {"peaks": [1]}]
)
def test_a_stored_field_of_another_type_is_refused(damaged: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        scaling_memory.restored(damaged)
