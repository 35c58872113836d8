"""Runs the real launchers of PyTorch's programs with agents and master, through every change."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import psutil
import pytest
from elasticjob_api import names

from tests.support.e2e.pytorch_job import SOURCES
from tests.support.e2e.trial import check_worlds, worlds
from tests.support.framework_python import installed_by
from tests.support.local_job import LocalJob

pytestmark = pytest.mark.thorough
SCRIPT = str(Path(__file__).parents[1] / "support" / "launched_training.py")
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
@pytest.mark.parametrize("slots", [1, 2])
def test_each_launcher_trains_through_resizes_and_a_kill_with_every_sample_once(
    local_job: LocalJob, launcher: str, slots: int
) -> None:
    job = local_job
    job.framework = "pytorch"
    program, *options = LAUNCHERS[launcher]
    command = (str(Path(installed_by("launchers_env"), "bin", program)), *options, SCRIPT)
    environment = {
        **{"FOLDER": str(job.folder), "PYTHONPATH": SOURCES, "GLOO_SOCKET_IFNAME": "lo"},
        names.ENV_SLOTS: str(slots),
    }
    job.start_master(2)
    agents = [job.start_agent(index, *command, **environment) for index in range(2)]
    world = trains(job, 2 * slots)
    agents.append(job.start_agent(2, *command, **environment))
    world = trains(job, 3 * slots, after=world)
    agents[2].send_signal(signal.SIGTERM)
    world = trains(job, 2 * slots, after=world)
    assert agents.pop().wait() == names.EXIT_DRAINED
    assert launchers_below(agents[1].pid) == 1
    max(ranks(agents[1].pid), key=lambda each: each.pid).send_signal(signal.SIGKILL)
    job.wait("the pod fails", lambda: agents[1].poll() is not None)
    assert agents[1].returncode == 128 + signal.SIGKILL, "not the launcher's own code"
    agents[1] = job.start_agent(1, *command, **environment)
    trains(job, 2 * slots, after=world)
    (job.folder / "finish").touch()
    job.wait("the agents end", lambda: all(agent.poll() is not None for agent in agents))
    assert [agent.returncode for agent in agents] == [0, 0], job.log()
    found = worlds(job.log())
    check_worlds(found, checkpoint_steps=CHECKPOINT_STEPS)
    assert [each.size for each in found] == [pods * slots for pods in (2, 3, 2, 2)], found
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
    return SCRIPT in process.cmdline()
