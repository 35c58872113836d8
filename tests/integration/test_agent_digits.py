"""Runs the digits example through world changes, with real agents, master and JAX processes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from elasticjob_api import names

from tests.support.local_job import LocalJob

pytestmark = pytest.mark.thorough

EXAMPLES = Path(__file__).parents[2] / "examples"
EPOCHS = 100
STEPS = EPOCHS * 12


def train(job: LocalJob, index: int) -> subprocess.Popen[bytes]:
    """Start a worker."""
    checkpoints = str(job.folder / "checkpoints")
    environment = {
        "PYTHONPATH": str(EXAMPLES),
        "EPOCHS": str(EPOCHS),
        "CHECKPOINT_DIR": checkpoints,
    }
    return job.start_agent(index, sys.executable, "-m", "digits.train", **environment)


def last_step(job: LocalJob) -> int:
    return max(map(int, re.findall(r"step (\d+)/", job.log())), default=0)


@pytest.mark.guarantee("master-can-be-replaced")
def test_digits_training_does_each_step_once_despite_resizes_and_a_killed_master(
    local_job: LocalJob,
) -> None:
    local_job.start_master()
    first = train(local_job, 0)
    second = train(local_job, 1)
    local_job.wait_for_line(r"step \d+/1200 round 1 size 2")
    third = train(local_job, 2)
    local_job.wait_for_line(r"step \d+/1200 round 2 size 3")
    second.send_signal(signal.SIGTERM)
    local_job.wait_for_line(r"step \d+/1200 round 3 size 2")
    local_job.kill_master()
    steps = last_step(local_job)
    local_job.wait(
        "training continues without a master", lambda: last_step(local_job) >= steps + 100
    )
    local_job.start_master()
    local_job.wait(
        "the agents end", lambda: all(agent.poll() is not None for agent in (first, second, third))
    )
    log = local_job.log()
    assert (first.returncode, second.returncode, third.returncode) == (0, names.EXIT_DRAINED, 0), (
        log
    )
    stopped = [int(step) for step in re.findall(r"stopped after step (\d+)/", log)]
    resumed = [int(step) for step in re.findall(r"from step (\d+),", log)]
    assert sorted(resumed) == sorted([0, *stopped]), log
    finished = re.search(r"finished: (\d+) steps, test accuracy ([0-9.]+)", log)
    assert finished, log
    assert int(finished[1]) == STEPS
    assert float(finished[2]) >= 0.95
    logged = [int(step) for step in re.findall(r"step (\d+)/1200 round", log)]
    assert sorted(logged) == list(range(50, STEPS + 1, 50)), log
