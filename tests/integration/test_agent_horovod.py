"""Runs unchanged Horovod Elastic processes without a launcher, with real agents and master."""

from __future__ import annotations

import os
import re
import signal
import subprocess

import psutil
import pytest
from elasticjob_api import names
from elasticjob_api.frameworks import FRAMEWORKS, Peer

from tests.support.horovod_jobs import (
    FINISH,
    SCRIPT,
    check_account,
    horovod_python,
    steps_in,
    train,
)
from tests.support.local_job import LocalJob

pytestmark = pytest.mark.thorough

ROLLED_BACK = 1
"""The steps that one failure may repeat: the script commits after each step."""


@pytest.fixture
def job(local_job: LocalJob) -> LocalJob:
    local_job.framework = "horovod"
    return local_job


def wait_for_size(job: LocalJob, size: int, *, after: int = 0) -> int:
    """Wait until a world of this size has trained a step after `after`, and return the step."""

    def steps() -> list[int]:
        return [step for step, of, _ in steps_in(job.log()) if of == size]

    job.wait(f"a step after {after} of a world of {size}", lambda: max(steps(), default=0) > after)
    return max(steps())


def finish(job: LocalJob, *agents: subprocess.Popen[bytes]) -> list[int]:
    """End the training, and return the exit codes of these agents."""
    (job.folder / FINISH).touch()
    return wait_for_end(job, *agents)


def wait_for_end(job: LocalJob, *agents: subprocess.Popen[bytes]) -> list[int]:
    job.wait("the agents end", lambda: all(agent.poll() is not None for agent in agents))
    return [agent.returncode for agent in agents]


def training_process(agent: subprocess.Popen[bytes]) -> psutil.Process:
    """Return the training process that an agent has started."""
    children = psutil.Process(agent.pid).children(recursive=True)
    return next(child for child in children if str(SCRIPT) in child.cmdline())


@pytest.mark.guarantee("unchanged-horovod-elastic", "one-world")
def test_a_world_resizes_in_its_running_processes_and_each_step_is_done_once(
    job: LocalJob,
) -> None:
    job.start_master()
    first = train(job, 0)
    second = train(job, 1)
    wait_for_size(job, 2)
    pids = {training_process(agent).pid for agent in (first, second)}
    third = train(job, 2)
    last = wait_for_size(job, 3)
    second.send_signal(signal.SIGTERM)
    wait_for_size(job, 2, after=last)
    assert training_process(first).pid in pids
    assert finish(job, first, second, third) == [0, names.EXIT_DRAINED, 0]
    check_account(job.log(), sizes={2, 3})


@pytest.mark.guarantee("unchanged-horovod-elastic", "one-world")
def test_a_killed_process_costs_the_others_at_most_one_uncommitted_step(
    job: LocalJob,
) -> None:
    job.start_master()
    *others, third = [train(job, index) for index in range(3)]
    last = wait_for_size(job, 3)
    training_process(third).send_signal(signal.SIGKILL)

    def others_train() -> bool:
        for index, agent in enumerate(others):
            if agent.poll() == 128 + signal.SIGABRT:
                # Gloo ended it, as it got a part of an unexpected message. Its pod is replaced.
                others[index] = train(job, index)
        return any(step > last and of == 2 for step, of, _ in steps_in(job.log()))

    job.wait("a world of the two others", others_train)
    assert wait_for_end(job, third) == [128 + signal.SIGKILL], "its agent has seen it"
    assert finish(job, *others) == [0, 0]
    assert len(re.findall(r"^world: rank 0 of 2 from step [1-9]", job.log(), re.MULTILINE)) == 1, (
        job.log()
    )
    check_account(job.log(), sizes={2, 3}, repeated=ROLLED_BACK)


def sizes_in(job: LocalJob) -> list[int]:
    return [size for _, size, _ in steps_in(job.log())]


@pytest.mark.guarantee("unchanged-horovod-elastic")
def test_a_killed_master_costs_nothing_and_the_next_one_changes_the_same_world(
    job: LocalJob,
) -> None:
    job.start_master()
    first = train(job, 0)
    second = train(job, 1)
    last = wait_for_size(job, 2)
    job.kill_master()
    wait_for_size(job, 2, after=last + 20)
    third = train(job, 2)
    job.start_master()
    wait_for_size(job, 3)
    assert finish(job, first, second, third) == [0, 0, 0]
    log = job.log()
    assert len(re.findall(r"^world: rank 0 of", log, re.MULTILINE)) == 2, log
    check_account(log, sizes={2, 3})


@pytest.mark.guarantee("unchanged-horovod-elastic")
def test_changes_in_short_order_all_arrive(job: LocalJob) -> None:
    """Workers 3 and 4 join, and worker 2 leaves, while the previous world still forms."""
    job.start_master()
    first = train(job, 0)
    second = train(job, 1)
    wait_for_size(job, 2)
    third = train(job, 2)
    job.wait_for_line(r"round 2, training: 3 members")
    fourth = train(job, 3)
    job.wait_for_line(r"world: rank 2 of 3")
    second.send_signal(signal.SIGTERM)
    job.wait_for_line(r"world: rank 2 of 3 from step \d+ weight \d+\n(.*\n)*world: rank 2 of 3")
    assert finish(job, first, second, third, fourth) == [0, names.EXIT_DRAINED, 0, 0]
    log = job.log()
    check_account(log, sizes=set(sizes_in(job)))
    assert sorted(re.findall(r"^finished: rank (\d) of 3", log, re.MULTILINE)) == ["0", "1", "2"], (
        log
    )


@pytest.mark.guarantee("unchanged-horovod-elastic")
def test_killing_a_master_while_a_world_forms_only_delays_the_world(job: LocalJob) -> None:
    job.start_master()
    first = train(job, 0)
    second = train(job, 1)
    wait_for_size(job, 2)
    third = train(job, 2)
    job.wait_for_line(r"round 2, training: 3 members")
    job.wait(
        "the third process exists", lambda: [p for p in (training_process_or_none(third),) if p]
    )
    job.kill_master()
    job.start_master()
    wait_for_size(job, 3)
    assert finish(job, first, second, third) == [0, 0, 0]
    check_account(job.log(), sizes={2, 3})


def training_process_or_none(agent: subprocess.Popen[bytes]) -> psutil.Process | None:
    try:
        return training_process(agent)
    except StopIteration:
        return None


def test_container_variables_override_the_defaults_and_proxies_are_bypassed(
    job: LocalJob,
) -> None:
    names_shown = ("HOROVOD_GLOO_TIMEOUT_SECONDS", "HOROVOD_CONTROLLER", "HOROVOD_SIZE", "no_proxy")
    show = (
        "import os; print(*(os.environ[name] for name in os.environ['SHOWN'].split()), flush=True)"
    )
    job.start_master()
    more = {
        "SHOWN": " ".join(names_shown),
        "HOROVOD_GLOO_TIMEOUT_SECONDS": "77",
        "HOROVOD_CONTROLLER": "mpi",
        "HOROVOD_SIZE": "1",
        "NO_PROXY": "example.org",
    }
    agents = [job.start_agent(index, "python3", "-c", show, **more) for index in range(2)]
    job.wait_for_line(r"77 gloo 2 example.org,127.0.0.1")
    assert wait_for_end(job, *agents) == [0, 0]
    assert os.environ.get("HOROVOD_SIZE") is None


def test_several_processes_of_a_pod_enter_and_leave_worlds_together(job: LocalJob) -> None:
    job.start_master()
    first, second, third = (train(job, index, slots=2) for index in range(3))
    last = wait_for_size(job, 6)
    second.send_signal(signal.SIGTERM)
    wait_for_size(job, 4, after=last)
    assert finish(job, first, second, third) == [0, names.EXIT_DRAINED, 0]
    check_account(job.log(), sizes={4, 6} | set(sizes_in(job)))


@pytest.mark.guarantee("stock-horovodrun")
def test_a_worker_fails_if_a_launcher_runs_the_script_itself() -> None:
    launcher = Peer("job-launcher-0", "launcher", 0, "127.0.0.1")
    worker = Peer("job-worker-0", "worker", 0, "127.0.0.2")
    variables = FRAMEWORKS["horovod"].environment([launcher, worker])(1)
    script = [
        horovod_python(),
        "-c",
        "import horovod.torch as hvd; hvd.init(); print('size', hvd.size())",
    ]
    ended = subprocess.run(
        script, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert ended.returncode != 0
    assert "Unsupported controller type" in ended.stderr
    assert "size" not in ended.stdout
