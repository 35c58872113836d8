"""Runs PyTorch's DistributedDataParallel with checkpoints in memory and a storage that hangs."""

from __future__ import annotations

import random
import signal
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from elasticjob_api import names

from tests.support.e2e import pytorch_job
from tests.support.e2e.pytorch_job import CHECKPOINT_STEPS, SLOTS, check_end
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.trial import SECONDS, Trial, worlds
from tests.support.wait import until

pytestmark = [pytest.mark.thorough, pytest.mark.embedded_only("PyTorch is that of this machine")]
EPOCHS = 400
MOVING_EPOCHS = 600
KILLS = 3
HANGS = """
import runpy, sys, time
from elasticjob.checkpoint_storage import Folder

def copy(folder, name, file, source, stopped):
    while not stopped():
        time.sleep(0.05)
    raise OSError("a newer checkpoint is written")

Folder.copy = copy
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script whose checkpoints are never copied from memory to the storage."""


@pytest.mark.guarantee("state-in-memory")
async def test_killed_processes_lose_no_step_that_is_saved_in_memory(
    sandbox: Sandbox, folder: Path
) -> None:
    python = pytorch_job.python()
    hangs = folder / "hangs.py"
    hangs.write_text(HANGS)
    job = pytorch_job.pytorch_job("ddp", folder, epochs=EPOCHS, command=[python, str(hangs)])
    job["spec"]["agent"] = {"stateMemory": "256Mi"}
    worker = job["spec"]["replicaSpecs"]["worker"]
    worker |= {"replicas": 1, "processRestartLimit": 100}
    sandbox.apply(job)
    chance = random.Random(1)
    async with sandbox.observe("ddp") as observer:
        trial = Trial(sandbox, observer, "ddp", python)
        await trial.trains(1, beyond=2 * CHECKPOINT_STEPS)
        memory = _memory(trial)
        for kill in range(1, KILLS + 1):
            least = _saved(memory) + chance.randrange(1, 2 * CHECKPOINT_STEPS)
            await until("a later step is saved", partial(_later, memory, least))
            before = _saved(memory)
            trial.kill_process(rank=chance.randrange(SLOTS))
            await until(f"world {kill + 1}", partial(_has_begun, trial, kill + 1), seconds=SECONDS)
            begun = worlds(trial.log())[-1]
            assert begun.first >= before, f"a step that was saved is lost: {before}, {begun}"
        assert not list(folder.glob("*/checkpoint-*/complete")), "the storage was not needed"
        await trial.succeeds()
        log = trial.log()
    check_end(log, EPOCHS)
    assert not memory.exists(), "the memory ends with the pod"


def _memory(trial: Trial) -> Path:
    """Return the folder in memory of the only pod."""
    process = trial.training_processes()[0]
    memory = Path(process.environ()[names.ENV_STATE_FOLDER])
    assert memory.is_relative_to("/dev/shm")
    return memory


def _saved(memory: Path) -> int:
    found = memory.glob("*/checkpoint-*/complete")
    return max((int(path.parent.name.split("-")[3]) for path in found), default=0)


async def _later(memory: Path, step: int) -> bool:
    return _saved(memory) >= step


async def _has_begun(trial: Trial, count: int) -> bool:
    return len(worlds(trial.log())) >= count


@pytest.mark.guarantee("state-in-memory")
async def test_pods_come_go_and_are_lost_while_the_storage_hangs(
    sandbox: Sandbox, folder: Path
) -> None:
    python = pytorch_job.python()
    hangs = folder / "hangs.py"
    hangs.write_text(HANGS)
    job = pytorch_job.pytorch_job("ddp", folder, epochs=MOVING_EPOCHS, command=[python, str(hangs)])
    job["spec"]["agent"] = {"stateMemory": "256Mi"}
    job["spec"]["replicaSpecs"]["worker"]["processRestartLimit"] = 100
    sandbox.apply(job)
    async with sandbox.observe("ddp") as observer:
        trial = Trial(sandbox, observer, "ddp", python)
        await trial.trains(2, beyond=2 * CHECKPOINT_STEPS)
        await trial.scale(3)
        assert not list(folder.glob("*/checkpoint-*/complete")), "a joiner needs no storage"
        await trial.trains(3, beyond=observer.status.progress.step + CHECKPOINT_STEPS)
        before = observer.status.progress.step // CHECKPOINT_STEPS * CHECKPOINT_STEPS
        trial.kill_process(rank=4)
        await trial.timed("kill -9 of a process to next step", 3)
        first = worlds(trial.log())[-1].first
        assert first >= before - CHECKPOINT_STEPS, worlds(trial.log())
        assert first > CHECKPOINT_STEPS, "the storage has nothing yet"
        await trial.trains(3, beyond=observer.status.progress.step + CHECKPOINT_STEPS)
        log = trial.log()
        sandbox.processes(max(observer.pods))[0].send_signal(signal.SIGKILL)
        await trial.timed("loss of a pod to next step", 3)
        log += trial.log()
        await trial.scale(2)
        assert list(folder.glob("*/checkpoint-*/complete")), "a stop with a leaver is stored"
        await trial.succeeds()
        log += trial.log()
    for world, following in pairwise(worlds(log)):
        least = world.first if world.last is None else world.last
        assert following.first >= least, f"a world has begun before the one before: {worlds(log)}"
    check_end(log, MOVING_EPOCHS)
