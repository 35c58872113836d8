"""Tests the published beliefs of the auto-scaler, which follow from its measurements.

They contain the true values, and their size and computing time are bounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import pytest
from elasticjob_master.core.autoscale import belief
from elasticjob_master.core.autoscale.belief import (
    CURVE_POINTS,
    BeliefOfLatestEvidence,
    Evidence,
    SizeBelief,
    form_belief,
    outcome,
)
from elasticjob_master.core.autoscale.decision import Bounds, candidates
from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.core.autoscale.posterior import Posterior, fit
from elasticjob_master.core.autoscale.scaling_memory import (
    FailedTrial,
    MeasuredRate,
    MeasuredRates,
    NodeSize,
    RolePeaks,
    ServerTrial,
)
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS

from tests.support.master.scaling_memories import memory_of

GIB = 1024**3
Curve = Callable[[int], float]


def evidence(rates: Mapping[int, float], *, size: int, high: int = 64) -> Evidence:
    measured = {n: MeasuredRate(rate, weight=4.0) for n, rate in rates.items()}
    return Evidence(MeasuredRates(measured), size, Bounds(1, high), Objective())


def by_size(known: Evidence) -> dict[int, SizeBelief]:
    return {each.size: each for each in form_belief(known).sizes}


def linear(size: int) -> float:
    return 100.0 * size


def saturating(size: int) -> float:
    return 100.0 * size / (1 + size / 12)


def congested(size: int) -> float:
    return 100.0 * size / (1 + size / 40 + (size / 16) ** 2)


def limited(size: int) -> float:
    return 100.0 * min(size, 12)


@pytest.mark.guarantee("auto-scaler-explains-itself")
@pytest.mark.parametrize("curve", [linear, saturating, congested, limited])
def test_the_true_throughput_and_the_best_size_are_in_the_ranges(curve: Curve) -> None:
    worths = {n: math.log(curve(n)) - 0.5 * math.log(n) for n in candidates(Bounds(1, 64), 16)}
    best = max(worths, key=lambda n: worths[n])
    known = form_belief(evidence({size: curve(size) for size in (1, 2, 4, 8, 16)}, size=16))
    assert known.best is not None
    assert known.best[0] <= best <= known.best[1], (known.best, best)
    for each in known.sizes[:-1]:  # of the last one, 64, hardly anything is known
        assert each.expected is not None
        assert each.expected.low <= each.expected.rate <= each.expected.high
        # A bound that is as abrupt as none other is a little beyond what is likely.
        assert each.expected.low / 1.03 <= curve(each.size) <= 1.03 * each.expected.high, each


def test_of_measured_sizes_is_said_which_are_too_small_and_which_too_large() -> None:
    known = by_size(evidence({size: limited(size) for size in (1, 2, 4, 8, 16, 32)}, size=16))
    expected = {size: known[size].expected for size in (2, 4, 8, 32)}
    too_small = {size for size, each in expected.items() if each and each.too_small > 0.9}
    assert too_small == {2, 4, 8}
    assert known[32].expected is not None
    assert known[32].expected.too_large > 0.9
    assert 64 in known, "the largest one that may be requested"
    assert known[64].measured is None


def test_what_was_measured_comes_with_its_windows_and_its_error() -> None:
    rates = {2: MeasuredRate(200.0, 1.0), 4: MeasuredRate(390.0, 8.0)}
    known = by_size(Evidence(MeasuredRates(rates), 4, Bounds(1, 4), Objective()))
    assert (known[2].measured, known[4].measured) == (rates[2], rates[4])
    assert known[2].error > 2 * known[4].error > 0
    assert known[4].error == pytest.approx(0.0075, abs=0.001)


def test_a_single_measured_size_says_nothing_of_others() -> None:
    for rates in ({}, {2: 200.0}, {2: 200.0, 4: 0.0}):
        known = form_belief(evidence(rates, size=2))
        assert known.best is None
        assert [(each.size, each.expected) for each in known.sizes] == [
            (2, None) for n in rates if n == 2
        ]


def test_a_longer_range_than_the_measured_one_is_doubted_more() -> None:
    def doubt(each: SizeBelief) -> float:
        assert each.expected is not None
        return each.expected.high / each.expected.low

    known = by_size(evidence({2: 200.0, 4: 390.0}, size=4))
    assert doubt(known[64]) > 2 * doubt(known[4])


@pytest.mark.guarantee("auto-scaler-explains-itself")
def test_the_number_of_listed_sizes_is_bounded_and_includes_the_present_one() -> None:
    rates = {size: saturating(size) for size in range(1, THRESHOLDS.stored + 1)}
    for size in (1, 20, 100):
        sizes = [each.size for each in form_belief(evidence(rates, size=size, high=100_000)).sizes]
        assert len(sizes) <= THRESHOLDS.stored
        assert sizes == sorted(set(sizes))
        assert {size, THRESHOLDS.stored, 100_000} <= set(sizes), "also the one measured last"
    assert form_belief(evidence({1: 100.0, 2: 190.0}, size=0)).sizes, "a role without members"


@pytest.mark.guarantee("auto-scaler-explains-itself")
@pytest.mark.parametrize("high", [4, 64, 100_000])
def test_the_drawn_curve_has_few_points_and_ends_where_sizes_matter(high: int) -> None:
    known = form_belief(evidence({2: 200.0, 4: 390.0}, size=4, high=high))
    sizes = [each.size for each in known.curve]
    assert sizes == sorted(set(sizes))
    assert len(sizes) <= CURVE_POINTS
    assert known.best is not None
    assert (sizes[0], sizes[-1]) == (1, min(high, 2 * 4))
    at = {each.size: each.expected for each in known.sizes}
    for point in known.curve:
        if (expected := at.get(point.size)) is not None:
            assert (point.rate, point.low, point.high) == (
                expected.rate,
                expected.low,
                expected.high,
            )


@pytest.mark.guarantee("auto-scaler-explains-itself")
def test_the_same_evidence_is_fitted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[float] = []

    def counted(
        rates: Mapping[int, MeasuredRate], noise: float, sizes: Sequence[int], node: NodeSize
    ) -> Posterior:
        fits.append(noise)
        return fit(rates, noise, sizes, node)

    monkeypatch.setattr(belief, "fit", counted)
    latest = BeliefOfLatestEvidence()
    for _ in range(100):
        latest.form(evidence({2: 200.0, 4: 390.0}, size=4))
    assert len(fits) == 1
    again = latest.form(evidence({2: 200.0, 4: 380.0}, size=4))
    assert len(fits) == 2
    assert again == form_belief(evidence({2: 200.0, 4: 380.0}, size=4))


@pytest.mark.parametrize(
    ("peaks", "text"),
    [
        (RolePeaks(), ""),
        (RolePeaks(before_lowering=(4.0, 8 * GIB)), "lowered: each had 4 cores and 8192 MiB"),
        (
            RolePeaks(keeps_resources=True),
            "was lowered and needed it: has it back, and is not lowered again",
        ),
        (RolePeaks(raised_memory=GIB), "memory raised to 1024 MiB"),
        (
            RolePeaks(raised_memory=GIB, fills_memory=True),
            "memory raised to 1024 MiB: the program fills it, so it gets no more",
        ),
        (
            RolePeaks(raised_memory=GIB, memory_has_room=True),
            "memory raised to 1024 MiB: that is enough",
        ),
    ],
)
def test_what_became_of_changed_resources_is_said(peaks: RolePeaks, text: str) -> None:
    assert outcome(memory_of(peaks={"worker": peaks}), "worker") == text


def test_what_became_of_more_cpu_for_servers_is_said() -> None:
    judging = memory_of(relief=ServerTrial(role="ps", size=4, rate=100.0, cores_before=2.0))
    assert outcome(judging, "ps") == "has more than 2 cores: whether that helps is being measured"
    failed = memory_of(failed_cpu={"ps": FailedTrial(4, 100.0)})
    assert outcome(failed, "ps") == "more CPU did not help"
    assert outcome(failed, "worker") == ""
