"""Tests the auto-scaler with jobs that are slow for a while after each rescale.

Compilation, caches and cold input let the rate rise from window to window. Such windows must not be
compared with those of a size that has trained for long.
"""

from __future__ import annotations

import dataclasses

import pytest
from elasticjob_master.core.autoscale.measurement_window import MeasurementWindow
from elasticjob_master.core.autoscale.measurements import Measurement

from bench.autoscale_job import SimulatedJob
from bench.autoscale_worlds import Curve, World, linear, saturating

WINDOW = 20.0


def half_for_some_minutes(seconds: float) -> float:
    return min(1.0, 0.5 + 0.5 * seconds / 1200)


def windows_of(rates: list[float], *, noise: float = 0.02) -> list[Measurement]:
    """Return the measurements of a world whose consecutive windows have these rates."""
    window = MeasurementWindow()
    samples = 0.0
    found = []
    for second in range(int(WINDOW * len(rates)) + 1):
        window.record_samples(world_round=1, samples=samples, step=second, now=float(second))
        found.append(window.observe(size=2, cooldown=WINDOW, now=float(second), noise=noise))
        samples += rates[min(int(second // WINDOW), len(rates) - 1)]
    return [each for each in found if each is not None]


@pytest.mark.guarantee("rough-or-changing-throughput")
@pytest.mark.parametrize("maximum", [16, 32])
@pytest.mark.parametrize("curve", [linear, saturating(0.02)], ids=["linear", "smooth"])
def test_a_job_whose_worlds_start_slowly_ends_at_its_best_size(maximum: int, curve: Curve) -> None:
    world = World("slow", "start", curve, 16, maximum, noise=0.01, slow_start=half_for_some_minutes)
    outcome = SimulatedJob(world).run()
    assert outcome.ratio >= 0.97, outcome
    assert outcome.utility >= 0.97, outcome


@pytest.mark.guarantee("rough-or-changing-throughput")
def test_a_throughput_that_rises_for_ever_does_not_keep_the_job_small() -> None:
    world = World("slow", "trend", linear, 4, 16, noise=0.005)
    world = dataclasses.replace(world, factor=lambda seconds: 1.06 ** (seconds / 300))
    outcome = SimulatedJob(world).run(hours=2.0)
    assert outcome.ratio == 1.0, outcome


def test_only_the_first_windows_of_a_world_are_left_out_because_they_rise() -> None:
    rises = [each.rises for each in windows_of([100.0 * 1.1**n for n in range(8)])]
    assert rises == [False, *[True] * 4, False, False, False]


def test_windows_that_differ_by_noise_do_not_rise() -> None:
    rates = [100.0, 110.0, 100.0, 111.0]
    assert [each.rises for each in windows_of(rates)] == [False, True, False, False]
    assert not any(each.rises for each in windows_of(rates, noise=0.03))
