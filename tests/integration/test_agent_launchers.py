"""Runs the real launchers of PyTorch's programs with agents and master, through every change."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest
from elasticjob_api import names

from tests.support.e2e.trial import check_worlds, worlds
from tests.support.framework_python import LIBRARY, installed_by
from tests.support.local_job import LocalJob

pytestmark = pytest.mark.thorough
SUPPORT = Path(__file__).parents[1] / "support"
SCRIPT = "_training.py"
"""The end of each script's name."""
BATCH = 12
CHECKPOINT_STEPS = 20

LAUNCHERS = {
    "torchrun": ["python", "-m", "torch.distributed.run", "--log-dir=logs"],
    "accelerate": ["accelerate", "launch", "--mixed_precision=no"],
    "deepspeed": ["deepspeed", "--no_local_rank"],
    "fabric": ["fabric", "run", "model", "--accelerator=cpu"],
}
"""Each with an option of its user."""


@pytest.mark.guarantee("launchers-of-pytorch")
@pytest.mark.parametrize("launcher", LAUNCHERS)
# `deepspeed` imports PyTorch twice before its processes do: six of them take minutes to start on a
# loaded machine.
@pytest.mark.parametrize(("pods", "slots"), [(2, 1), (1, 2)])
def test_each_launcher_trains_through_resizes_and_a_kill_with_every_sample_once(
    local_job: LocalJob, launcher: str, pods: int, slots: int
) -> None:
    train(local_job, launcher, "launched_training.py", pods, {names.ENV_SLOTS: str(slots)})


@pytest.mark.guarantee("sharded-checkpoints")
@pytest.mark.parametrize("stage", ["1", "2"])
def test_a_model_of_zero_continues_in_a_world_of_another_size_bit_for_bit(
    local_job: LocalJob, stage: str
) -> None:
    train(local_job, "deepspeed", "zero_training.py", 2, {"STAGE": stage})
    log = local_job.log()
    saved = dict(re.findall(r"stopped after step (\d+) state (\w+)", log))
    read = dict(re.findall(r"from step (\d+) state (\w+)", log))
    assert len(saved) >= 2, log
    assert saved == {step: read.get(step) for step in saved}
    assert len(set(read.values())) == len(read), "the model has not learned"


def train(
    job: LocalJob, launcher: str, script: str, pods: int, variables: Mapping[str, str]
) -> None:
    """Train by a number of pods, by one more, without that one, and with a killed process."""
    job.framework = "pytorch"
    slots = int(variables.get(names.ENV_SLOTS, "1"))
    program, *options = LAUNCHERS[launcher]
    launchers = Path(installed_by("launchers_env"), "bin")
    command = (str(launchers / program), *options, str(SUPPORT / script))
    environment = {
        **{"FOLDER": str(job.folder), "PYTHONPATH": LIBRARY, "GLOO_SOCKET_IFNAME": "lo"},
        **variables,
    }
    job.start_master(pods)
    agents = [job.start_agent(index, *command, **environment) for index in range(pods)]
    world = trains(job, pods * slots)
    agents.append(job.start_agent(pods, *command, **environment))
    world = trains(job, (pods + 1) * slots, after=world)
    agents[-1].send_signal(signal.SIGTERM)
    world = trains(job, pods * slots, after=world)
    assert agents.pop().wait() == names.EXIT_DRAINED
    assert launchers_below(agents[-1].pid) == 1
    max(ranks(agents[-1].pid), key=lambda each: each.pid).send_signal(signal.SIGKILL)
    job.wait("the pod fails", lambda: agents[-1].poll() is not None)
    assert agents[-1].returncode == 128 + signal.SIGKILL, "not the launcher's own code"
    agents[-1] = job.start_agent(pods - 1, *command, **environment)
    trains(job, pods * slots, after=world)
    (job.folder / "finish").touch()
    job.wait("the agents end", lambda: all(agent.poll() is not None for agent in agents))
    assert {agent.returncode for agent in agents} == {0}, job.log()
    found = worlds(job.log())
    check_worlds(found, checkpoint_steps=CHECKPOINT_STEPS)
    sizes = [size * slots for size in (pods, pods + 1, pods, pods)]
    assert [each.size for each in found] == sizes, found
    (end,) = re.findall(r"end: (\d+) steps, (\d+) samples, sum (\d+)", job.log())
    steps, samples, total = map(int, end)
    assert samples == steps * BATCH
    assert total == samples * (samples - 1) // 2, "a sample is lost, or there twice"


def trains(job: LocalJob, size: int, *, after: int = 0) -> int:
    """Wait until a world of a later round has trained beyond a checkpoint; return its round."""

    def steps() -> list[str]:
        found = re.findall(rf"round (\d+) size {size} step \d+", job.log())
        return [each for each in found if int(each) > after]

    job.wait(f"steps of {size} processes", lambda: len(steps()) * 5 > CHECKPOINT_STEPS)
    return int(steps()[-1])


def ranks(agent: int) -> list[psutil.Process]:
    """Return the training processes below an agent: they start no other with the script."""
    below = [each for each in psutil.Process(agent).children(recursive=True) if runs(each)]
    parents = {each.ppid() for each in below}
    return [each for each in below if each.pid not in parents]


def launchers_below(agent: int) -> int:
    return sum(runs(each) for each in psutil.Process(agent).children())


def runs(process: psutil.Process) -> bool:
    return any(word.endswith(SCRIPT) for word in process.cmdline())
