"""Tests how a chaos run measures the time that training stood still."""

from __future__ import annotations

import pytest

from tests.support.chaos.latencies import Latencies, measure
from tests.support.chaos.samples import ProcessLog


def process(round_: int, size: int, *trained_at: float) -> ProcessLog:
    lines = [{"at": at, "trained": number} for number, at in enumerate(trained_at)]
    return ProcessLog(
        f"pod-{round_}", {"at": trained_at[0] - 1, "round": round_, "size": size}, lines
    )


LOGS = [
    process(1, 2, 10.0, 10.5),
    process(1, 2, 10.2, 10.7),
    process(2, 2, 14.7, 15.0),
    process(3, 3, 17.0, 17.5),
]


def test_a_kill_counts_until_the_next_world_and_a_request_until_its_world_trains() -> None:
    found = Latencies()
    measure(found, LOGS, kills=[10.6, 17.2], rescales=[(13.0, 3), (14.0, 4)], suspended=[])
    assert found.restarts == [pytest.approx(4.1)], (
        "after the second kill there was nothing left to train"
    )
    assert found.rescales == [pytest.approx(4.0)], "no world had the size 4"
    assert found.idle == pytest.approx(4.0 + 2.0)
    assert found.total == pytest.approx(7.5)
    assert dict(found.rows())["kill to step"] == "1: p50 4.1 s, p99 4.1 s, longest 4.1 s"


def test_time_in_suspension_is_not_lost_time() -> None:
    found = Latencies()
    measure(found, LOGS, kills=[10.6], rescales=[(10.6, 3)], suspended=[11.0, 14.0])
    assert (found.restarts, found.rescales) == ([], [])
    assert found.idle == pytest.approx(2.0)
