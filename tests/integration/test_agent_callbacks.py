"""Runs the callbacks' examples in real frameworks, agents and master, through every change."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import psutil
import pytest
from elasticjob_api import names

from tests.support.framework_python import LIBRARY, installed_by
from tests.support.local_job import LocalJob

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
EPOCHS = 200
STEPS = EPOCHS * 12
"""Of 120 samples each: all ranks together train as many in any world."""


@pytest.mark.parametrize(
    ("example", "framework", "script"),
    [
        ("keras", "tensorflow", "tensorflow_env"),
        ("huggingface", "pytorch", "callbacks_env"),
        ("lightning", "pytorch", "callbacks_env"),
    ],
)
def test_training_continues_from_its_last_step_through_resizes_and_a_kill(
    local_job: LocalJob, example: str, framework: str, script: str
) -> None:
    job = local_job
    checkpoints = local_job.folder / "checkpoints"
    job.framework = framework
    environment = {"EPOCHS": str(EPOCHS), "CHECKPOINT_DIR": str(checkpoints), "PYTHONPATH": LIBRARY}
    command = (installed_by(script), str(ROOT / "examples" / "frameworks" / example / "train.py"))

    def saved() -> set[tuple[Path, int]]:
        files = [path for path in checkpoints.rglob("*") if path.is_file()]
        return {(path, path.stat().st_mtime_ns) for path in files if path.exists()}

    def trains(size: int, worlds: int) -> None:
        """Wait for the world of this number, and for a checkpoint that it saves."""
        job.wait(f"world {worlds}", lambda: len(begun(job)) >= worlds)
        assert begun(job)[-1][0] == size, job.log()
        before = saved()
        job.wait("a checkpoint", lambda: saved() - before)

    job.start_master(least=2)
    agents = [job.start_agent(index, *command, **environment) for index in range(2)]
    trains(2, 1)
    agents.append(job.start_agent(2, *command, **environment))
    trains(3, 2)
    agents[2].send_signal(signal.SIGTERM)
    trains(2, 3)
    assert agents.pop().wait() == names.EXIT_DRAINED, job.log()
    for process in psutil.Process(agents[1].pid).children():
        process.kill()
    job.wait("the pod fails", lambda: agents[1].poll() is not None)
    assert agents[1].returncode == 128 + signal.SIGKILL, job.log()
    agents[1] = job.start_agent(1, *command, **environment)
    trains(2, 4)
    job.wait("the training ends", lambda: all(agent.poll() is not None for agent in agents))
    assert [agent.returncode for agent in agents] == [0, 0], job.log()
    steps = [step for _, step in begun(job)]
    assert steps[0] == 0
    assert steps == sorted(steps), "a world has begun again at an earlier step"
    (end,) = re.findall(r"finished: (\d+) steps, accuracy ([\d.]+)", job.log())
    assert int(end[0]) == STEPS, job.log()
    assert float(end[1]) > 0.9


def begun(job: LocalJob) -> list[tuple[int, int]]:
    """Return size and first step of each world, in their order."""
    found = re.findall(r"round (\d+) size (\d+) from (.*)", job.log())
    return [
        (int(size), int((re.findall(r"\d+", Path(source).name) or ["0"])[-1]))
        for _, size, source in sorted(found, key=lambda world: int(world[0]))
    ]
