"""Ranks agree through a real master on the step after which they stop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import psutil
import pytest
from elasticjob_api import names

from tests.support.chaos import synchronous_training
from tests.support.local_job import LocalJob
from tests.support.thorough import some_of
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
SAMPLES = 1200
STEP_SECONDS = 0.01


def trained(folder: Path, round_: int | None = None) -> list[int]:
    """Return the shards that the processes of a world have trained; None: of all worlds."""
    logs = (folder / "log").glob("*" if round_ is None else f"*-{round_}-*")
    lines = [line for path in logs for line in path.read_text().splitlines()]
    return [entry["trained"] for line in lines if "trained" in (entry := json.loads(line))]


@pytest.mark.guarantee("ranks-stop-together")
@pytest.mark.parametrize("saves_by", some_of(["master", "collective"], first=1))
def test_no_sample_is_trained_twice_when_worlds_stop_for_a_joiner_and_a_leaver(
    local_job: LocalJob, saves_by: str
) -> None:
    """Each world stops after the same step in all ranks, or its last steps would be repeated."""
    job = local_job
    (job.folder / "log").mkdir()
    go_file = job.folder / "go"
    command = [sys.executable, "-m", synchronous_training.__name__, str(job.folder)]
    command += [str(SAMPLES), str(STEP_SECONDS), saves_by]

    def start(index: int) -> subprocess.Popen[bytes]:
        return job.start_agent(index, *command, PYTHONPATH=str(ROOT), GO_FILE=str(go_file))

    def wait_for_world(round_: int, size: int) -> None:
        job.wait(
            f"world {round_} of {size} trains",
            lambda: (
                len(list((job.folder / "log").glob(f"*-{round_}-*"))) == size
                and len(trained(job.folder, round_)) > 20
            ),
        )

    job.start_master()
    first = start(0)
    second = start(1)
    wait_for_world(1, 2)
    third = start(2)
    wait_for_world(2, 3)
    second.send_signal(signal.SIGTERM)
    wait_for_world(3, 2)
    go_file.touch()
    agents = (first, second, third)
    job.wait("the agents end", lambda: all(agent.poll() is not None for agent in agents))
    assert [agent.returncode for agent in agents] == [0, names.EXIT_DRAINED, 0], job.log()
    model = synchronous_training.newest(job.folder / "volume")
    assert model["end"]
    shards = range(SAMPLES // synchronous_training.SHARD_SIZE)
    assert Counter(shard for shard, _, _ in model["model"]) == Counter(shards)
    assert Counter(trained(job.folder)) == Counter(shards), "a world has lost steps at its stop"
    assert {round_ for _, round_, _ in model["model"]} == {1, 2, 3}


COUNTING = """
    import time
    import elasticjob

    here = elasticjob.world()
    step = 0
    while True:
        step += 1
        print(f"round {here.round} size {here.size} rank {here.rank} step {step}")
        if elasticjob.should_stop():
            print(f"rank {here.rank} is asked to stop")
        if elasticjob.should_stop_together():
            elasticjob.confirm_stop()
            raise SystemExit(0)
        time.sleep(0.01 * (1 + here.rank))
"""
"""A program without collectives, in which rank 1 is slower."""


def suspended(agent: subprocess.Popen[bytes], script: Path, rank: int) -> psutil.Process:
    """Suspend the process of a rank, so that it cannot publish its limit, and return it."""
    (process,) = (
        child
        for child in psutil.Process(agent.pid).children(recursive=True)
        if str(script) in child.cmdline() and child.environ()[names.ENV_RANK] == str(rank)
    )
    process.suspend()
    # Until its main thread takes the signal, the others run on.
    wait_until("it is stopped", lambda: process.status() == psutil.STATUS_STOPPED)
    return process


@pytest.mark.guarantee("ranks-stop-together")
@pytest.mark.parametrize("pods", some_of([2, 1], first=1))
def test_a_rank_that_dies_before_it_agrees_ends_the_agreement_of_the_others(
    local_job: LocalJob, pods: int
) -> None:
    """Otherwise the others would wait for its limit until they are terminated."""
    job = local_job
    script = job.folder / "train.py"
    script.write_text(textwrap.dedent(COUNTING))
    job.start_master(pods)
    slots = {names.ENV_SLOTS: str(2 // pods)}
    command = (sys.executable, "-u", str(script))
    agents = [job.start_agent(index, *command, **slots) for index in range(pods)]
    for rank in range(2):  # from its first call on it is asked, and not terminated at once
        job.wait_for_line(f"round 1 size 2 rank {rank} step 2")
    by_rank = {
        int(line.split("rank ")[1].split()[0]): agent
        for index, agent in enumerate(agents)
        for line in (job.folder / f"worker-{index}.log").read_text().splitlines()
        if "size 2 rank" in line
    }
    leaver = by_rank[0]
    dying = suspended(by_rank[1], script, 1)
    leaver.send_signal(signal.SIGTERM)
    job.wait_for_line("rank 0 is asked to stop")
    dying.kill()
    job.wait("the leaver ends", lambda: leaver.poll() is not None)
    assert leaver.returncode == names.EXIT_DRAINED, job.log()
    assert "AgentError: the ranks cannot agree to stop" in job.log(), "it was terminated"
    assert "rank 1 is asked to stop" not in job.log()
