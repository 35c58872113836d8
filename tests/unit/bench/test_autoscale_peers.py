"""Tests the policies that the auto-scaler is compared with."""

from __future__ import annotations

import pytest
from elasticjob_master.core.autoscale.decision import Bounds
from elasticjob_master.core.autoscale.objective import Objective

from bench.autoscale_job import SimulatedJob
from bench.autoscale_peers import PEERS, doubling, fitted_curve
from bench.autoscale_worlds import World, saturating

BOUNDS = Bounds(1, 64)


@pytest.mark.parametrize("peer", PEERS)
def test_a_peer_finds_a_good_size_where_the_curve_is_smooth(peer: str) -> None:
    world = World("smooth", "8 % serial", saturating(0.08), 2, noise=0.0)
    outcome = SimulatedJob(world, autoscaler=PEERS[peer]()).run()
    assert outcome.utility >= 0.95, outcome


def test_doubling_returns_once_and_stays() -> None:
    assert doubling({4: 400.0}, BOUNDS, Objective()) == 8
    assert doubling({4: 400.0, 8: 450.0}, BOUNDS, Objective()) == 4


def test_a_curve_that_fits_gives_the_size_between_the_measured_ones() -> None:
    rates = {size: 1 / (0.08 + 0.92 / size) for size in (4, 8, 16, 32)}
    size = fitted_curve(rates, BOUNDS, Objective())
    assert 8 < size < 16, "the best one is 11 or 12"
    after = {**rates, size: 1 / (0.08 + 0.92 / size)}
    assert fitted_curve(after, BOUNDS, Objective()) == size
