"""Runs a real master and real agents on nodes of their own, one of which vanishes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.separate_nodes import SeparateNodes, separate_nodes

WORKERS = 3
TRAINING = """
import itertools, time
import elasticjob

world = elasticjob.world()
print(f"began {world.rank} of {world.size} in round {world.round}", flush=True)
for step in itertools.count(1):
    if elasticjob.should_stop():
        elasticjob.confirm_stop()
        break
    elasticjob.report_step(step, samples=1)
    time.sleep(0.05)
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[SeparateNodes]:
    """Return a job of three workers that train. A member is lost after five minutes."""
    (tmp_path / "train.py").write_text(TRAINING)
    with separate_nodes(tmp_path, WORKERS) as job:
        job.start_master(2, f"--workers={WORKERS}", "--lost-seconds=300")
        for index in range(WORKERS):
            job.start_agent(index, sys.executable, str(tmp_path / "train.py"))
        wait_for_world(job, size=WORKERS, after=0)
        yield job


def wait_for_world(job: SeparateNodes, *, size: int, after: int) -> int:
    """Wait until all processes of a later world train; return its round."""

    def begun() -> list[int]:
        found = re.findall(rf"began \d+ of {size} in round (\d+)", job.log())
        return [int(each) for each in found if int(each) > after]

    job.wait(f"a world of {size}", lambda: any(begun().count(each) == size for each in begun()))
    return max(begun())


@pytest.mark.guarantee("node-vanishes")
def test_the_others_train_on_without_a_node_that_vanishes_and_with_it_when_it_returns(
    job: SeparateNodes,
) -> None:
    job.wait("connections", lambda: len(job.watched(0)) == 2)
    job.vanish(0)
    smaller = wait_for_world(job, size=WORKERS - 1, after=1)
    job.return_(0)
    wait_for_world(job, size=WORKERS, after=smaller)
    assert "Traceback" not in job.log()
