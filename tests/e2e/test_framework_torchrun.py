"""Runs torchrun with two processes a pod: `make e2e FRAMEWORK=torchrun`."""

from __future__ import annotations

import os
import shlex
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.convert import sample
from tests.support.e2e import pytorch_job, standby_processes
from tests.support.e2e.converted import create_converted, set_environment
from tests.support.e2e.pytorch_job import CHECKPOINT_STEPS, SLOTS, check_end
from tests.support.e2e.sandbox import Sandbox
from tests.support.e2e.trial import Trial, check_worlds

pytestmark = [pytest.mark.thorough, pytest.mark.embedded_only("PyTorch is that of this machine")]
SIZES = [2 * SLOTS, 3 * SLOTS, 2 * SLOTS]
EPOCHS = 300
STANDBY_EPOCHS = 10_000
"""More than there is time for."""
KILLS = 2


@pytest.mark.guarantee("several-processes-per-pod", "torchrun-process-fails")
async def test_torchrun_trains_through_resizes_a_killed_process_and_a_killed_master(
    sandbox: Sandbox, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    logs = tmp_path_factory.mktemp("torchrun")
    command = pytorch_job.torchrun(pytorch_job.python(), logs)
    sandbox.apply(pytorch_job.pytorch_job("torchrun", folder, epochs=EPOCHS, command=command))
    async with sandbox.observe("torchrun") as observer:
        trial = Trial(sandbox, observer, "torchrun", pytorch_job.python())
        await trial.trains_through_changes(2 * SLOTS)
        log = trial.log()
        kills: Counter[str] = Counter()
        for _ in range(KILLS):
            kills[trial.kill_process(rank=3)] += 1
            await trial.timed("kill -9 of a process to next step", 2)
            assert observer.job is not None
            restarts = observer.job.status.replica_statuses["worker"].restarts_by_index
            assert restarts == kills, "the pod of the killed process, and no other, is replaced"
            log += trial.log()
        await trial.succeeds()
        log += trial.log()
    check_worlds(log, SIZES, checkpoint_steps=CHECKPOINT_STEPS)
    check_end(log, EPOCHS)


@pytest.mark.guarantee("standby-like-a-cold-start")
async def test_worlds_begin_with_torchrun_and_its_processes_from_standby(
    sandbox: Sandbox, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    logs = tmp_path_factory.mktemp("torchrun")
    python = pytorch_job.python()
    command = pytorch_job.torchrun(python, logs)
    job = pytorch_job.pytorch_job("torchrun", folder, epochs=STANDBY_EPOCHS, command=command)
    job["spec"]["agent"] = {"standby": "Always"}
    sandbox.apply(job)
    async with sandbox.observe("torchrun") as observer:
        trial = Trial(sandbox, observer, "torchrun", python)
        await trial.trains(2, beyond=100)
        training = await standby_processes.resize(trial, in_pod=SLOTS + 1)  # and torchrun
        below_torchrun = [pid for pid in training if psutil.Process(pid).ppid() in training]
        os.kill(below_torchrun[0], signal.SIGKILL)
        await trial.timed("kill -9 of a process to next step", 2)
        log = trial.log()
    check_worlds(log, SIZES, checkpoint_steps=CHECKPOINT_STEPS)


async def test_a_converted_job_of_dlrover_runs_under_torchrun_and_is_scaled_by_its_plans(
    sandbox: Sandbox, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (elastic_job,) = sample("dlrover/torch-mnist.yaml")
    worker = elastic_job["spec"]["replicaSpecs"]["worker"]
    worker["replicas"] = 2  # this machine is small
    pod = worker["template"]["spec"]
    (container,) = pod["containers"]
    dlrover_run, script, _ = container["command"][-1].partition(
        "examples/pytorch/mnist/cnn_train.py"
    )
    assert script
    container["command"][-1] = dlrover_run + str(pytorch_job.SCRIPT)
    container["resources"] = pytorch_job.RESOURCES
    programs = _with_torchrun(tmp_path_factory)
    set_environment(
        container,
        PATH=f"{programs}:{os.environ['PATH']}",
        **pytorch_job.variables(folder, epochs=EPOCHS),
    )
    create_converted(sandbox, elastic_job)
    async with sandbox.observe("torch-mnist") as observer:
        trial = Trial(sandbox, observer, "torch-mnist", pytorch_job.python())
        await trial.trains(2, beyond=100)
        assert len(trial.training_processes()) == 2 * SLOTS
        create_converted(
            sandbox,
            _scale_plan("more", createPods=[_pod(2, resource={"cpu": "10m", "memory": "64Mi"})]),
        )
        await trial.timed("converted createPods", 3)
        create_converted(sandbox, _scale_plan("fewer", removePods=[_pod(2)]))
        await trial.timed("converted removePods", 2)
        await trial.succeeds()
        log = trial.log()
    assert len(check_worlds(log, SIZES, checkpoint_steps=CHECKPOINT_STEPS)) == len(SIZES), log
    check_end(log, EPOCHS)


def _with_torchrun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the `torchrun` of the PyTorch under test."""
    folder = tmp_path_factory.mktemp("programs")
    logs = tmp_path_factory.mktemp("torchrun")
    command = pytorch_job.torchrun(pytorch_job.python(), logs)
    program = folder / "torchrun"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    program.chmod(0o755)
    return folder


def _scale_plan(name: str, **spec: Any) -> dict[str, Any]:
    """Return a ScalePlan of DLRover."""
    labels = {"elasticjob-name": "torch-mnist", "scale-type": "manual"}
    metadata = {"name": name, "labels": labels}
    body = {"ownerJob": "torch-mnist", **spec}
    return {
        "apiVersion": "elastic.iml.github.io/v1alpha1",
        "kind": "ScalePlan",
        "metadata": metadata,
        "spec": body,
    }


def _pod(number: int, **fields: Any) -> dict[str, Any]:
    """Return a pod of a ScalePlan, as DLRover's master writes it."""
    name = f"torch-mnist-edljob-worker-{number}"
    return {"name": name, "type": "worker", "id": number, "rankIndex": number, **fields}
