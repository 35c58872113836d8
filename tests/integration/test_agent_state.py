"""Checkpoints are kept in memory, and written to a slow storage while the training goes on."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from elasticjob.checkpoint_storage import Folder
from elasticjob_api import names

from tests.support import state_training
from tests.support.chaos import synchronous_training
from tests.support.local_job import LocalJob
from tests.support.master_process import peer_identity

ROOT = Path(__file__).parents[2]
SAMPLES = 3200
STEP_SECONDS = 0.005
KILLS = 5


def start(
    job: LocalJob, index: int, *, slow: float, room: int = 1 << 26
) -> subprocess.Popen[bytes]:
    """Start a worker whose storage takes some seconds for each file."""
    memory = job.folder / f"memory-{index}"
    memory.mkdir(exist_ok=True)
    (job.folder / "log").mkdir(exist_ok=True)
    command = [sys.executable, "-m", state_training.__name__, str(job.folder)]
    command += [str(SAMPLES), str(STEP_SECONDS), str(slow)]
    variables = {
        "PYTHONPATH": str(ROOT),
        names.ENV_STATE_FOLDER: str(memory),
        names.ENV_STATE_BYTES: str(room),
        names.ENV_PEER_IDENTITY: peer_identity(),
        names.ENV_PROCESS_RESTART_LIMIT: "1000",
    }
    return job.start_agent(index, *command, **variables)


def noted(job: LocalJob, field: str) -> list[dict[str, Any]]:
    """Return the lines of all processes with this field."""
    paths = sorted((job.folder / "log").iterdir(), key=lambda path: path.stat().st_mtime)
    lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    return [line for line in lines if field in line]


def saved(job: LocalJob) -> int:
    """Return the step of the newest complete checkpoint in memory."""
    found = job.folder.glob("memory-*/*/checkpoint-*/complete")
    return max((int(path.parent.name.split("-")[3]) for path in found), default=0)


def wait_until_saved(job: LocalJob, step: int) -> None:
    """Wait until a checkpoint of a step, or of a later one, is complete in memory."""
    job.wait(f"step {step} is saved", lambda: saved(job) >= step)


def wait_for_starts(job: LocalJob, count: int) -> None:
    """Wait until training processes have begun so often."""
    job.wait(f"start {count}", lambda: len(noted(job, "begins_at")) == count)


def stored(job: LocalJob) -> int:
    """Return the step of the newest checkpoint in the storage."""
    found = Folder(job.folder / "volume").complete()
    return int(found[-1].split("-")[3]) if found else 0


def kill_training(agent: subprocess.Popen[bytes]) -> None:
    """Kill the training process of an agent."""
    for process in psutil.Process(agent.pid).children(recursive=True):
        if state_training.__name__ in process.cmdline():
            process.kill()


def check_end(job: LocalJob) -> None:
    """Check that each sample is in the model of the storage once."""
    model = synchronous_training.newest(job.folder / "volume")
    assert model["end"]
    shards = range(SAMPLES // synchronous_training.SHARD_SIZE)
    assert Counter(shard for shard, _, _ in model["model"]) == Counter(shards), job.log()


@pytest.mark.guarantee("state-in-memory")
def test_killed_processes_lose_no_step_that_is_saved_in_memory(local_job: LocalJob) -> None:
    job = local_job
    job.start_master(least=1)
    agent = start(job, 0, slow=60)
    chance = random.Random(1)
    for kill in range(1, KILLS + 1):
        least = saved(job) + chance.randrange(20, 60)
        wait_until_saved(job, least)
        before = saved(job)
        kill_training(agent)
        wait_for_starts(job, kill + 1)
        begun = max(noted(job, "begins_at"), key=lambda each: each["begins_at"])
        assert begun["in_memory"], job.log()
        assert begun["begins_at"] >= before, "a saved step is lost"
    assert stored(job) == 0, "the storage was too slow for all of these checkpoints"
    job.wait("the agent ends", lambda: agent.poll() is not None)
    assert agent.returncode == 0, job.log()
    check_end(job)


@pytest.mark.thorough
@pytest.mark.guarantee("state-in-memory")
def test_worlds_that_change_continue_from_memory_without_a_storage(local_job: LocalJob) -> None:
    job = local_job

    def wait_for_world(count: int) -> dict[str, Any]:
        job.wait(f"world {count}", lambda: len(worlds(job)) == count)
        wait_until_saved(job, saved(job) + 60)
        return worlds(job)[-1]

    job.start_master(least=2)
    first = start(job, 0, slow=60)
    second = start(job, 1, slow=60)
    wait_for_world(1)
    third = start(job, 2, slow=60)
    assert wait_for_world(2)["in_memory"], "the world stops for a joiner"
    before = saved(job)
    kill_training(third)
    begun = wait_for_world(3)
    assert begun["in_memory"]
    assert begun["begins_at"] >= before
    assert stored(job) == 0, "nothing was written to the storage until a member leaves"
    second.terminate()
    begun = wait_for_world(4)
    assert not begun["in_memory"], "its parts would be lost with it"
    second.wait(30)
    shutil.rmtree(job.folder / "memory-1")
    before = saved(job)
    first.kill()
    first.wait()
    shutil.rmtree(job.folder / "memory-0")
    first = start(job, 0, slow=60)
    begun = wait_for_world(5)
    assert begun["in_memory"], "the other member has its parts, too"
    lag = 2 * synchronous_training.SAVED_EVERY  # of two ranks
    assert begun["begins_at"] >= before - lag, "only the newest copy may have been under way"
    agents = (first, third)
    job.wait("the agents end", lambda: all(agent.poll() is not None for agent in agents))
    assert [agent.returncode for agent in agents] == [0, 0], job.log()
    check_end(job)


def worlds(job: LocalJob) -> list[dict[str, Any]]:
    """Return how each world has begun."""
    by_round: dict[int, dict[str, Any]] = {}
    for each in noted(job, "begins_at"):
        by_round.setdefault(each["round"], each)
    return [by_round[round_] for round_ in sorted(by_round)]
