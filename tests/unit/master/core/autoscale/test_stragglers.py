"""Tests the auto-scaler in simulated jobs in which a straggler is replaced during the search."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from bench.autoscale_job import SimulatedJob
from bench.autoscale_worlds import UNSEEN, World, drawn
from tests.support.thorough import some_of

SLOWED = 0.4
"""The relative throughput while one member needs 2.5 times as long as the others."""
LASTS = 400.0
"""Seconds until a straggler is found and has been slow for long enough to be replaced."""


class StragglingJob(SimulatedJob):
    """A job with a straggler from some second on, which is replaced."""

    def __init__(self, world: World, begin: float) -> None:
        end = begin + LASTS
        super().__init__(
            replace(world, factor=lambda seconds: SLOWED if begin <= seconds < end else 1.0)
        )
        self.straggles: float | None = begin

    def _train(self) -> tuple[float, float]:
        trained = super()._train()
        if self.straggles is not None and self.now >= self.straggles + LASTS:
            size = self._scaling.desired
            self._pause = self.world.rescale
            self._begin_round(size)
            self.autoscaler.straggler_replaced(since=1e9 + self.straggles, size=size)
            self.straggles = None
        return trained


@pytest.mark.guarantee("straggler-replaced")
@pytest.mark.parametrize("begin", some_of([400.0, 900.0], first=1))
def test_a_search_with_a_straggler_that_is_replaced_ends_near_the_best_size(begin: float) -> None:
    outcomes = [StragglingJob(drawn("smooth", UNSEEN + number), begin).run() for number in range(4)]
    assert fmean(outcome.ratio for outcome in outcomes) >= 0.97, "\n".join(map(str, outcomes))
    for outcome in outcomes:
        assert outcome.ratio >= 0.9, str(outcome)
        assert outcome.most_plans <= 10, str(outcome)
        assert len(outcome.plans) - outcome.looks <= 2, f"more than one search anew: {outcome}"


def test_no_rate_that_was_measured_with_a_straggler_is_believed_after_it_is_replaced() -> None:
    world = drawn("smooth", UNSEEN)
    job = StragglingJob(world, 400.0)
    while job.straggles is not None:
        job.run(hours=(job.now + 15) / 3600)
    known = job.autoscaler.memory
    assert all(rate.at < 1e9 + 400.0 for rate in known.rates.by_size.values())
