"""The auto-scaler on throughput curves: within bounds, at most one reversal, and then quiet."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from elasticjob_master.core.autoscale import Bounds, Memory, Window, decide, failed, remember
from hypothesis import given
from hypothesis import strategies as st

Curve = Callable[[int], float]


def run(curve: Curve, *, start: int, bounds: Bounds, objective: float = 0.5) -> list[int]:
    """Hold, measure, decide, until it stays; return the sizes."""
    memory, sizes = Memory(), [start]
    for _ in range(40):
        memory = remember(memory, sizes[-1], curve(sizes[-1]))
        decision = decide(memory, size=sizes[-1], bounds=bounds, objective=objective)
        assert decision.reason
        memory = decision.memory
        if decision.size is None:
            again = decide(memory, size=sizes[-1], bounds=bounds, objective=objective)
            assert again.size is None, "what has settled stays"
            return sizes
        sizes.append(decision.size)
    raise AssertionError(f"it never settles: {sizes}")


def reversals(sizes: list[int]) -> int:
    steps = [right - left for left, right in pairwise(sizes)]
    return sum((left > 0) != (right > 0) for left, right in pairwise(steps))


def linear(size: int) -> float:
    return 100.0 * size


def amdahl(serial: float) -> Curve:
    return lambda size: 100.0 / (serial + (1 - serial) / size)


@given(
    st.integers(1, 64),
    st.integers(1, 64),
    st.integers(1, 64),
    st.floats(0.05, 1.0),
    st.lists(st.floats(1.0, 1e6), min_size=64, max_size=64),
)
def test_any_curve_stays_in_bounds_turns_at_most_once_and_settles(
    start: int, low: int, high: int, objective: float, rates: list[float]
) -> None:
    low, high = sorted((low, high))
    start = min(max(start, low), high)
    sizes = run(lambda size: rates[size - 1], start=start, bounds=Bounds(low, high), objective=objective)
    assert all(low <= size <= high for size in sizes)
    assert reversals(sizes) <= 1


def test_perfect_scaling_doubles_up_to_the_bound() -> None:
    assert run(linear, start=1, bounds=Bounds(1, 10)) == [1, 2, 4, 8, 10]


def test_what_does_not_pay_goes_back_to_the_last_size_that_did() -> None:
    assert run(amdahl(0.2), start=1, bounds=Bounds(1, 64)) == [1, 2, 4, 8, 4]


@pytest.mark.parametrize(("third", "target"), [(300.0, 5), (210.0, 2)])
def test_two_measured_sizes_decide_both_ways(third: float, target: int) -> None:
    memory = remember(remember(Memory(), 2, 200.0), 3, third)
    decision = decide(memory, size=3, bounds=Bounds(1, 5), objective=0.5)
    assert decision.size == target
    assert "2 members: 200.0 samples/s, 3 members:" in decision.reason


def test_the_reason_tells_the_numbers() -> None:
    memory = remember(remember(Memory(), 2, 200.0), 3, 210.0)
    assert decide(memory, size=3, bounds=Bounds(1, 5), objective=0.5).reason == (
        "2 members: 200.0 samples/s, 3 members: 210.0 samples/s: a further member adds 10% of an average one "
        "(100.0 samples/s), below minMarginalEfficiency 50%: back to 2"
    )


def test_without_a_larger_bound_it_does_not_grow() -> None:
    decision = decide(remember(Memory(), 3, 90.0), size=3, bounds=Bounds(1, 3, "worker.replicas"), objective=0.5)
    assert decision.size is None
    assert "worker.replicas allows no more than 3" in decision.reason


def test_a_plan_that_was_not_fulfilled_ends_the_growth() -> None:
    memory = failed(remember(Memory(), 4, 400.0), 4)
    assert decide(memory, size=4, bounds=Bounds(1, 64), objective=0.5).size is None


def test_somebody_elses_size_opens_the_question_again() -> None:
    memory = Memory({2: 200.0, 4: 210.0}, settled=2, asked=2)
    memory = remember(memory, 8, 800.0)
    assert decide(memory, size=8, bounds=Bounds(1, 64), objective=0.5).size == 16


def test_a_size_is_measured_only_when_held_and_after_its_first_steps() -> None:
    window = Window()

    def observe(now: float, samples: float, size: int = 2, world_round: int = 1) -> float | None:
        return window.observe(size=size, world_round=world_round, samples=samples, cooldown=10.0, now=now)

    assert observe(0.0, 0.0) is None
    assert observe(2.0, 5.0) is None  # the slow beginning is not counted
    assert observe(9.9, 700.0) is None
    assert observe(10.0, 805.0) == pytest.approx(100.0)
    assert observe(11.0, 905.0, world_round=2) is None
    window.restart()
    assert observe(30.0, 2000.0, world_round=2) is None
