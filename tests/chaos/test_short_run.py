"""Runs chaos for a minute, so that its program stays usable."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chaos.run import Options, run
from tests.support.chaos.schedule import switched_on


@pytest.mark.guarantee("random-faults")
@pytest.mark.thorough
async def test_jobs_end_correctly_under_a_minute_of_random_faults(tmp_path: Path) -> None:
    record = await run(
        Options(seed=1, minutes=1, faults=switched_on(""), gap=3, jobs_at_a_time=2), tmp_path
    )
    assert record.findings == []
    assert record.jobs >= 2
    assert record.faults.total() >= 10, record.missed
