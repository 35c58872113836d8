"""Runs processes that continue from world to world (`onWorldChange: Notify`)."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections import Counter

import psutil
import pytest
from elasticjob_api import names

from tests.support import notified_training
from tests.support.local_job import LocalJob

SCRIPT = notified_training.__file__


@pytest.fixture
def job(local_job: LocalJob) -> LocalJob:
    local_job.framework = "custom"
    return local_job


def start_master(job: LocalJob) -> None:
    job.start_master(2, "--on-world-change=Notify")


def train(job: LocalJob, index: int, **environment: str) -> subprocess.Popen[bytes]:
    return job.start_agent(index, sys.executable, SCRIPT, FOLDER=str(job.folder), **environment)


def worlds(job: LocalJob) -> list[tuple[int, int, int]]:
    """Return size and round of each world that has met, and the process that printed it."""
    lines = re.findall(r"^world: (\d+) rank \d+ of (\d+) round (\d+)", job.log(), re.MULTILINE)
    return [(int(size), int(round_), int(pid)) for pid, size, round_ in lines]


def wait_for_world(job: LocalJob, size: int, *, after: int = 0) -> int:
    """Wait until all processes of a world of this size have met in a round later than `after`.

    Return the round.
    """

    def met() -> list[int]:
        count = Counter((of, round_) for of, round_, _ in worlds(job))
        return [
            round_
            for (of, round_), times in count.items()
            if of == times == size and round_ > after
        ]

    job.wait(f"a world of {size} after round {after}", met)
    return max(met())


def processes(job: LocalJob) -> set[int]:
    """Return the ids of all training processes that were ever started."""
    return {pid for _, _, pid in worlds(job)}


def finish(job: LocalJob, *agents: subprocess.Popen[bytes]) -> list[int]:
    """End the training, and return the exit codes of these agents."""
    (job.folder / "finish").touch()
    job.wait("the agents end", lambda: all(agent.poll() is not None for agent in agents))
    return [agent.returncode for agent in agents]


def trained(job: LocalJob) -> Counter[int]:
    """Return the number of times that each sample was trained."""
    shards = re.findall(r"^trained: (\d+) (\d+)", job.log(), re.MULTILINE)
    return Counter(sample for start, end in shards for sample in range(int(start), int(end)))


@pytest.mark.guarantee("notified-processes")
def test_a_world_resizes_in_its_running_processes_and_each_sample_is_trained_once(
    job: LocalJob,
) -> None:
    start_master(job)
    first = train(job, 0)
    second = train(job, 1)
    wait_for_world(job, 2)
    first.send_signal(signal.SIGSTOP)
    third = train(job, 2)
    job.wait_for_line(r"round 2, training: 3 members")
    first.send_signal(signal.SIGCONT)  # it is notified late, and the others wait for it
    grown = wait_for_world(job, 3)
    second.send_signal(signal.SIGTERM)
    wait_for_world(job, 2, after=grown)
    assert finish(job, first, second, third) == [0, names.EXIT_DRAINED, 0]
    assert len(processes(job)) == 3, "none was started again"
    entered = re.findall(r"^entered: (\d+) round (\d+)", job.log(), re.MULTILINE)
    assert sorted(Counter(entered).values()) == [1] * 7, (
        "each process was notified of each of its worlds once"
    )
    assert trained(job) == dict.fromkeys(range(notified_training.SAMPLES), 1)
    refusals = re.findall(
        r"^not restored: .* onWorldChange: Notify; .* cannot go back to a checkpoint",
        job.log(),
        re.M,
    )
    assert len(refusals) == 3
    before_and_after = re.findall(r"may commit: (\w+) before, (\w+) after", job.log())
    assert before_and_after == [("False", "True")] * 4


@pytest.mark.guarantee("notified-processes")
def test_the_others_train_on_while_a_process_that_has_left_their_world_ends(job: LocalJob) -> None:
    start_master(job)
    agents = [train(job, index, LINGERS="2") for index in range(3)]
    world = wait_for_world(job, 3)
    log = job.folder / "worker-2.log"
    job.wait("it listens for stops", lambda: log.read_text().count("trained: ") > 1)
    (leaver,) = psutil.Process(agents[2].pid).children()
    agents[2].send_signal(signal.SIGTERM)
    wait_for_world(job, 2, after=world)
    assert leaver.is_running()
    assert finish(job, *agents) == [0, 0, names.EXIT_DRAINED]
    assert trained(job) == dict.fromkeys(range(notified_training.SAMPLES), 1)


@pytest.mark.thorough
def test_a_new_master_announces_the_world_to_processes_that_trained_without_one(
    job: LocalJob,
) -> None:
    start_master(job)
    agents = [train(job, 0), train(job, 1)]
    wait_for_world(job, 2)
    job.kill_master()
    agents.append(train(job, 2))
    start_master(job)
    wait_for_world(job, 3)
    job.kill_master()
    start_master(job)
    agents.append(train(job, 3))
    wait_for_world(job, 4)
    assert finish(job, *agents) == [0] * 4
    assert len(processes(job)) == 4
    assert trained(job) == dict.fromkeys(range(notified_training.SAMPLES), 1)


@pytest.mark.thorough
def test_a_crashed_process_costs_the_others_nothing(job: LocalJob) -> None:
    start_master(job)
    first, second, third = (train(job, index) for index in range(3))
    world = wait_for_world(job, 3)
    (process,) = psutil.Process(third.pid).children()
    process.kill()
    wait_for_world(job, 2, after=world)
    job.wait("its agent ends", lambda: third.poll() is not None)
    assert third.returncode == 128 + signal.SIGKILL
    assert finish(job, first, second) == [0, 0]
    assert len(processes(job)) == 3
    assert set(trained(job)) == set(range(notified_training.SAMPLES))


@pytest.mark.thorough
def test_a_process_that_does_not_enter_the_world_is_restarted_in_it(job: LocalJob) -> None:
    start_master(job)
    agents = [train(job, 0, DEAF="0"), train(job, 1)]
    wait_for_world(job, 2)
    agents.append(train(job, 2))
    wait_for_world(job, 3)
    assert finish(job, *agents) == [0, 0, 0]
    assert len(processes(job)) == 4, "only the deaf process was restarted"
    assert trained(job) == dict.fromkeys(range(notified_training.SAMPLES), 1)
