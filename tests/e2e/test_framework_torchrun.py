"""torchrun, for real, with two processes a pod: `make e2e FRAMEWORK=torchrun`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.e2e import pytorch_job
from tests.support.e2e.pytorch_job import CHECKPOINT_STEPS, SLOTS, check_end
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.trial import Trial, check_worlds, worlds

pytestmark = [pytest.mark.thorough, pytest.mark.embedded_only("PyTorch is that of this machine")]
EPOCHS, KILLS = 300, 2
LOG_OPTIONS = ("-r", "1", "-t", "1")
"""Debian's torchrun, of 1.13 with Python 3.11, does not start without them."""


async def test_torchrun_trains_on_through_2_3_2_pods_a_killed_process_and_a_killed_master(
    sandbox: Sandbox, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    logs = tmp_path_factory.mktemp("torchrun")
    command = [pytorch_job.python(), "-m", "torch.distributed.run", *LOG_OPTIONS, "--log_dir", str(logs)]
    sandbox.apply(pytorch_job.pytorch_job("torchrun", folder, epochs=EPOCHS, command=command))
    async with sandbox.observe("torchrun") as observer:
        trial = Trial(sandbox, observer, "torchrun", pytorch_job.python())
        await trial.trains(2, beyond=100)
        assert len(trial.training_processes()) == 2 * SLOTS
        await trial.scale(3)
        await trial.scale(2)
        await trial.lives_through_kill_of_the_master(2)
        log = trial.log()
        for kill in range(1, KILLS + 1):
            trial.kill_process(rank=3)
            await trial.timed("kill -9 of a process to next step", 2)
            assert observer.job is not None
            restarts = observer.job.status.replica_statuses["worker"].restarts_by_index
            assert restarts == {"1": kill}, "the pod of the killed process, and no other, is replaced"
            log += trial.log()
        await trial.succeeds()
        log += trial.log()
    found = worlds(log)
    check_worlds(found, checkpoint_steps=CHECKPOINT_STEPS)
    assert [world.size for world in found[:3]] == [2 * SLOTS, 3 * SLOTS, 2 * SLOTS], found
    assert found[-1].size == 2 * SLOTS, found
    check_end(log, EPOCHS)
