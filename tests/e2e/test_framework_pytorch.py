"""Runs PyTorch's DistributedDataParallel in a job, and by `elasticjob run` without a cluster."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.changing_job import check_one_model
from tests.support.e2e import pytorch_job, standby_processes
from tests.support.e2e.pytorch_job import CHECKPOINT_STEPS, SCRIPT, SLOTS, check_end
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.trial import Trial, check_worlds
from tests.support.framework_python import LIBRARY
from tests.support.local_job import LocalJob
from tests.support.local_run import local_run
from tests.support.wait import until

pytestmark = [pytest.mark.thorough, pytest.mark.embedded_only("PyTorch is that of this machine")]
SIZES = [2 * SLOTS, 3 * SLOTS, 2 * SLOTS]
EPOCHS = 300
STANDBY_EPOCHS = 10_000
"""More than there is time for."""
LOCAL_EPOCHS = 600
WORLDS_EPOCHS = 600
FSDP_EPOCHS = 80


DIVIDED = """
import elasticjob.torch
try:
    elasticjob.torch.ShardedState(print)
    print("made")
except ImportError as error:
    print(error)
"""


def test_an_early_pytorch_has_all_but_the_divided_state_and_says_what_that_needs() -> None:
    done = subprocess.run(
        [pytorch_job.python(), "-c", DIVIDED],
        env={**os.environ, "PYTHONPATH": LIBRARY},
        capture_output=True,
        text=True,
    )
    assert re.match("made|ShardedState needs PyTorch 2.6 or later", done.stdout), done.stderr


@pytest.mark.guarantee("several-processes-per-pod")
async def test_ddp_trains_through_resizes_a_killed_process_and_a_killed_master(
    sandbox: Sandbox, folder: Path
) -> None:
    python = pytorch_job.python()
    sandbox.apply(pytorch_job.pytorch_job("ddp", folder, epochs=EPOCHS, command=[python]))
    async with sandbox.observe("ddp") as observer:
        trial = Trial(sandbox, observer, "ddp", python)
        await trial.trains_through_changes(2 * SLOTS)
        log = trial.log()  # of a pod that may be replaced: either may seem to have failed first
        trial.kill_process(rank=3)
        await trial.timed("kill -9 of a process to next step", 2)
        await trial.succeeds()
        assert observer.job is not None
        assert observer.job.status.replica_statuses["worker"].restarts == 1
        log += trial.log()
    check_worlds(log, SIZES, checkpoint_steps=CHECKPOINT_STEPS)
    check_end(log, EPOCHS)


@pytest.mark.guarantee("standby-like-a-cold-start")
async def test_worlds_begin_with_processes_from_standby(sandbox: Sandbox, folder: Path) -> None:
    python = pytorch_job.python()
    job = pytorch_job.pytorch_job("ddp", folder, epochs=STANDBY_EPOCHS, command=[python])
    job["spec"]["agent"] = {"standby": "Always"}
    sandbox.apply(job)
    async with sandbox.observe("ddp") as observer:
        trial = Trial(sandbox, observer, "ddp", python)
        await trial.trains(2, beyond=100)
        training = await standby_processes.resize(trial, in_pod=SLOTS)
        os.kill(min(training), signal.SIGKILL)
        await trial.timed("kill -9 of a process to next step", 2)
        log = trial.log()
    check_worlds(log, SIZES, checkpoint_steps=CHECKPOINT_STEPS)


@pytest.mark.guarantee("pytorch-worlds")
async def test_processes_continue_through_resizes_a_killed_master_and_a_killed_process(
    sandbox: Sandbox, folder: Path
) -> None:
    python = pytorch_job.python_since(2, 1)
    sandbox.apply(pytorch_job.pytorch_job("worlds", folder, epochs=WORLDS_EPOCHS, command=[python]))
    async with sandbox.observe("worlds") as observer:
        trial = Trial(sandbox, observer, "worlds", python, script="worlds.py")
        await trial.trains(2, beyond=100)
        first = {process.pid for process in trial.training_processes()}
        assert len(first) == 2 * SLOTS
        await trial.scale(3)
        # The others train on until the new processes are ready.
        await until("the world of three pods", lambda: _trains(trial, 3 * SLOTS))
        await trial.scale(2)
        assert {process.pid for process in trial.training_processes()} == first
        await trial.survives_kill_of_the_master(2)
        trial.kill_process(rank=3)
        await trial.timed("kill -9 of a process to next step", 2)
        assert len({process.pid for process in trial.training_processes()} & first) == SLOTS
        await trial.succeeds()
        log = trial.log()
    check_worlds(log, SIZES, checkpoint_steps=1)
    check_end(log, WORLDS_EPOCHS)


async def _trains(trial: Trial, size: int) -> bool:
    return f" size {size} loss" in trial.log()


@pytest.mark.guarantee("sharded-checkpoints")
async def test_fsdp_saved_by_four_processes_continues_by_two_and_by_three_bit_for_bit(
    sandbox: Sandbox, folder: Path
) -> None:
    python = pytorch_job.python_since(2, 6)
    job = pytorch_job.pytorch_job("fsdp", folder, epochs=FSDP_EPOCHS, command=[python])
    # The pod that stays for the whole test has rank 0, and so the whole log.
    job["spec"]["replicaSpecs"]["worker"] |= {"replicas": 1, "maxReplicas": 6, "slotsPerReplica": 1}
    sizes = [1, 6, 4, 2, 4, 3]  # 6 and 3 divide neither layer: their parts are uneven, or empty
    sandbox.apply(job)
    async with sandbox.observe("fsdp") as observer:
        trial = Trial(sandbox, observer, "fsdp", python, script="fsdp.py")
        await trial.trains(1, beyond=50)
        for pods in sizes[1:]:
            await trial.scale(pods)
        log = trial.log()  # of a pod that may be replaced
        trial.kill_process(rank=2)
        await trial.timed("kill -9 of a process to next step", sizes[-1])
        await trial.succeeds()
        log += trial.log()
    check_worlds(log, sizes, checkpoint_steps=CHECKPOINT_STEPS)
    saved = dict(re.findall(r"stopped after step (\d+) state (\w+)", log))
    read = dict(re.findall(r"from step (\d+) state (\w+)", log))
    assert len(saved) >= len(sizes) - 1, log
    assert saved == {step: read.get(step) for step in saved}
    check_end(log, FSDP_EPOCHS)


@pytest.mark.guarantee("local-run")
@pytest.mark.parametrize("torchrun", [False, True], ids=["ddp", "torchrun"])
def test_a_ddp_program_is_scaled_locally_while_it_trains_without_losing_a_step(
    tmp_path: Path, torchrun: bool
) -> None:
    python = pytorch_job.python()
    program = pytorch_job.torchrun(python, tmp_path) if torchrun else [python]
    command = [*program, str(SCRIPT)]
    with local_run(tmp_path) as run:
        run.environment |= pytorch_job.variables(tmp_path, epochs=LOCAL_EPOCHS)
        del run.environment["PYTHONPATH"]  # the run adds the library to the command's own Python
        process = run.start(
            "-n", "2", "--workers", "1:3", "--framework", "pytorch", "--name", "ddp", "--", *command
        )
        run.wait_for_line(r"step \d+/\d+ round \d+ size 2 ")
        for size in (3, 1):
            code, said = run.call("scale", "ddp", str(size), "--wait", "--timeout=60")
            assert code == 0, f"{said}\n{shlex.join(command)}\n{run.log()}"
            run.wait_for_line(rf"step \d+/\d+ round \d+ size {size} ")
        assert run.wait_for_end(process) == 0, run.log()
        log = re.sub(r"^(\[\d+\] )?(\[default\d+\]:)?", "", run.log(), flags=re.MULTILINE)
        run.wait_until_nothing_is_left()
    assert len(check_worlds(log, [2, 3, 1], checkpoint_steps=CHECKPOINT_STEPS)) == 3, log
    check_end(log, LOCAL_EPOCHS)


@pytest.mark.guarantee("one-world")
def test_processes_train_one_model_as_a_single_process_would(local_job: LocalJob) -> None:
    check_one_model(local_job, "pytorch", pytorch_job.python())
