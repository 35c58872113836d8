"""Trains by agents and a master of this machine through every change of a world.

The script prints its worlds as launched_training.py does, and ends when its FOLDER has `finish`.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest
from elasticjob_api import names

from tests.support.e2e.trial import check_worlds
from tests.support.framework_python import LIBRARY
from tests.support.linear_model import weights
from tests.support.local_job import LocalJob

SUPPORT = Path(__file__).parent
SCRIPT = "_training.py"
"""The end of each script's name."""
CHECKPOINT_STEPS = 20


def train_through_changes(
    job: LocalJob,
    command: Sequence[str],
    pods: int = 2,
    *,
    variables: Mapping[str, str] | None = None,
    launched: bool = False,
) -> None:
    """Train by a number of pods, by one more, without that one, and with a killed process.

    If it is `launched`, one process of each pod runs the command and starts the others.
    """
    environment = {
        **{"FOLDER": str(job.folder), "PYTHONPATH": LIBRARY, "GLOO_SOCKET_IFNAME": "lo"},
        **(variables or {}),
    }
    slots = int(environment.get(names.ENV_SLOTS, "1"))
    job.start_master(pods)
    agents = [job.start_agent(index, *command, **environment) for index in range(pods)]
    world = _trains(job, pods * slots)
    agents.append(job.start_agent(pods, *command, **environment))
    world = _trains(job, (pods + 1) * slots, after=world)
    agents[-1].send_signal(signal.SIGTERM)
    world = _trains(job, pods * slots, after=world)
    assert agents.pop().wait() == names.EXIT_DRAINED
    started = sum(_runs(each) for each in psutil.Process(agents[-1].pid).children())
    assert started == (1 if launched else slots)
    max(_ranks(agents[-1].pid), key=lambda each: each.pid).send_signal(signal.SIGKILL)
    job.wait("the pod fails", lambda: agents[-1].poll() is not None)
    assert agents[-1].returncode == 128 + signal.SIGKILL, "not a launcher's own code"
    agents[-1] = job.start_agent(pods - 1, *command, **environment)
    _trains(job, pods * slots, after=world)
    (job.folder / "finish").touch()
    job.wait("the agents end", lambda: all(agent.poll() is not None for agent in agents))
    assert {agent.returncode for agent in agents} == {0}, job.log()
    sizes = [size * slots for size in (pods, pods + 1, pods, pods)]
    assert len(check_worlds(job.log(), sizes, checkpoint_steps=CHECKPOINT_STEPS)) == len(sizes)


def check_one_model(job: LocalJob, framework: str, python: str) -> None:
    """Check that the processes of a framework train one model, as a single process would."""
    job.framework = framework
    command = [python, str(SUPPORT / "linear_training.py"), framework]
    train_through_changes(job, command)
    check_weights(job)


def check_weights(job: LocalJob) -> None:
    """Check that a linear model has the weights that one process has after as many steps."""
    ((steps, found),) = re.findall(r"end: (\d+) steps, weights \[(.*)\]", job.log())
    expected = pytest.approx(weights(int(steps)), rel=1e-9)
    assert [float(each) for each in found.split(", ")] == expected, steps


def _trains(job: LocalJob, size: int, *, after: int = 0) -> int:
    """Wait until a world of a later round has trained beyond a checkpoint; return its round."""

    def steps() -> list[str]:
        found = re.findall(rf"round (\d+) size {size} step \d+", job.log())
        return [each for each in found if int(each) > after]

    job.wait(f"steps of {size} processes", lambda: len(steps()) * 5 > CHECKPOINT_STEPS)
    return int(steps()[-1])


def _ranks(agent: int) -> list[psutil.Process]:
    """Return the training processes below an agent: they start no other with the script."""
    below = [each for each in psutil.Process(agent).children(recursive=True) if _runs(each)]
    parents = {each.ppid() for each in below}
    return [each for each in below if each.pid not in parents]


def _runs(process: psutil.Process) -> bool:
    return any(word.endswith(SCRIPT) for word in process.cmdline())
