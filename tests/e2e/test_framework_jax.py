"""Scales the JAX example of the digits while it trains, and measures the cost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.changing_job import check_one_model
from tests.support.e2e.sandbox import EXAMPLES, Sandbox, digits
from tests.support.e2e.trial import Trial, check_worlds
from tests.support.local_job import LocalJob

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.embedded_only("a process of its command is killed by its name"),
]
EPOCHS = 5000
WORLDS_EPOCHS = 1500
CHECKPOINT_STEPS = 1000
"""More than the example trains: other tests cover its end."""


async def test_jax_trains_through_resizes_a_killed_process_and_a_killed_master(
    sandbox: Sandbox, folder: Path
) -> None:
    job = digits(epochs=EPOCHS, checkpoints=folder)
    job["spec"]["runPolicy"]["cleanPodPolicy"] = "None"  # the test reads its log at the end
    (container,) = job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["containers"]
    container["command"] = [sys.executable, str(EXAMPLES / "digits" / "train.py")]
    sandbox.apply(job)
    async with sandbox.observe("digits") as observer:
        trial = Trial(sandbox, observer, "digits", sys.executable)
        await trial.trains_through_changes()
        log = trial.log()  # the log of a pod that is replaced
        trial.kill_process(rank=1)
        await trial.timed("kill -9 of a process to next step", 2)
        assert observer.job is not None
        assert observer.job.status.replica_statuses["worker"].restarts == 1
        log += trial.log()
    check_worlds(log, [2, 3, 2], checkpoint_steps=CHECKPOINT_STEPS)


@pytest.mark.guarantee("jax-worlds")
async def test_processes_continue_through_resizes_and_a_killed_process(
    sandbox: Sandbox, folder: Path
) -> None:
    job = digits(epochs=WORLDS_EPOCHS, checkpoints=folder)
    job["spec"]["runPolicy"]["cleanPodPolicy"] = "None"  # the test reads its log at the end
    role = job["spec"]["replicaSpecs"]["worker"]
    role["onWorldChange"] = "Notify"
    role["drainSeconds"] = 60
    (container,) = role["template"]["spec"]["containers"]
    container["command"] = [sys.executable, str(EXAMPLES / "digits" / "worlds.py")]
    sandbox.apply(job)
    async with sandbox.observe("digits") as observer:
        trial = Trial(sandbox, observer, "digits", sys.executable, script="worlds.py")
        await trial.trains(2, beyond=100)
        first = {process.pid for process in trial.training_processes()}
        await trial.scale(3)
        await trial.scale(2)
        assert {process.pid for process in trial.training_processes()} == first
        trial.kill_process(rank=1)
        await trial.timed("kill -9 of a process to next step", 2)
        assert len({process.pid for process in trial.training_processes()} & first) == 1
        await trial.succeeds()
        log = trial.log()
    check_worlds(log, checkpoint_steps=1)
    steps = WORLDS_EPOCHS * 12
    assert f"finished: {steps} steps, {WORLDS_EPOCHS * 1500} samples" in log


@pytest.mark.guarantee("one-world")
def test_processes_train_one_model_as_a_single_process_would(local_job: LocalJob) -> None:
    check_one_model(local_job, "jax", sys.executable)
