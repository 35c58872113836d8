"""Runs PyTorch's DistributedDataParallel with two processes a pod: `make e2e FRAMEWORK=pytorch`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.e2e import pytorch_job
from tests.support.e2e.pytorch_job import CHECKPOINT_STEPS, SLOTS, check_end
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.trial import Trial, check_worlds, worlds

pytestmark = [pytest.mark.thorough, pytest.mark.embedded_only("PyTorch is that of this machine")]
EPOCHS = 300


@pytest.mark.guarantee("several-processes-per-pod")
async def test_ddp_trains_through_resizes_a_killed_process_and_a_killed_master(
    sandbox: Sandbox, folder: Path
) -> None:
    python = pytorch_job.python()
    sandbox.apply(pytorch_job.pytorch_job("ddp", folder, epochs=EPOCHS, command=[python]))
    async with sandbox.observe("ddp") as observer:
        trial = Trial(sandbox, observer, "ddp", pytorch_job.python())
        await trial.trains(2, beyond=100)
        assert len(trial.training_processes()) == 2 * SLOTS
        await trial.scale(3)
        await trial.scale(2)
        await trial.lives_through_kill_of_the_master(2)
        log = trial.log()  # of a pod that may be replaced: either may seem to have failed first
        trial.kill_process(rank=3)
        await trial.timed("kill -9 of a process to next step", 2)
        await trial.succeeds()
        assert observer.job is not None
        assert observer.job.status.replica_statuses["worker"].restarts == 1
        log += trial.log()
    found = worlds(log)
    check_worlds(found, checkpoint_steps=CHECKPOINT_STEPS)
    assert [world.size for world in found[:3]] == [2 * SLOTS, 3 * SLOTS, 2 * SLOTS], found
    assert found[-1].size == 2 * SLOTS, found
    check_end(log, EPOCHS)
