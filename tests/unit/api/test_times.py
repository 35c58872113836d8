"""Times, as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime

from elasticjob_api.times import format_time, parse_time
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(0, 253_402_300_799))
def test_times_are_those_of_the_calendar(seconds: int) -> None:
    assert format_time(
        seconds
    ) == f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}".zfill(20)
    assert parse_time(format_time(seconds)) == seconds
