"""Runs the real JAX in processes that continue when the world changes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from elasticjob_api import names

from tests.support.e2e.continuing_job import (
    Run,
    check_a_frozen_pod_of_rank_0,
    check_a_loss_of_all_processes,
    check_a_member_that_comes_too_late,
    check_a_stop_of_all_processes,
    check_an_error_of_the_program,
    check_random_kills,
    child_of,
    pauses,
)
from tests.support.framework_python import LIBRARY
from tests.support.local_job import LocalJob

pytestmark = pytest.mark.thorough
SCRIPT = str(Path(__file__).parents[1] / "support" / "jax_worlds.py")
SEEDS = [int(seed) for seed in os.environ.get("SEEDS", "1,2").split(",")]


def run_of(job: LocalJob, *, lost_seconds: int = 30, **environment: str) -> Run:
    return Run(job, "jax", sys.executable, SCRIPT, environment, lost_seconds=lost_seconds)


@pytest.mark.guarantee("jax-worlds")
def test_a_group_grows_and_shrinks_in_its_running_processes_without_losing_a_step(
    local_job: LocalJob,
) -> None:
    run = run_of(local_job)
    run.environment[names.ENV_DRAIN_SECONDS] = "120"  # the first two train on for half of it
    agents = [run.add(index) for index in range(2)]
    first = run.trains(2)
    agents.append(run.add(2))
    grown = run.trains(3, after=first)
    agents[2].send_signal(signal.SIGTERM)
    run.trains(2, after=grown)
    assert run.finish(*agents) == [0, 0, names.EXIT_DRAINED]
    run.check(processes=3)
    committed = sorted({(each.step, each.round) for each in run.steps()})
    assert [step for step, _ in committed] == list(range(1, len(committed) + 1))
    print("MEASURED", pauses(run.steps()))


@pytest.mark.guarantee("jax-worlds")
@pytest.mark.parametrize("rank", [0, 1])
def test_the_others_return_to_their_last_commit_when_a_process_is_killed_in_an_all_reduce(
    local_job: LocalJob, rank: int
) -> None:
    run = run_of(local_job, PAD="3000000", SLOW="0")
    agents = [run.add(index) for index in range(3)]
    world = run.trains(3, beyond=5)
    (killed,) = {each.process for each in run.steps() if (each.round, each.rank) == (world, rank)}
    (index,) = (index for index, agent in enumerate(agents) if child_of(agent).pid == killed)
    child_of(agents[index]).kill()
    world = run.trains(2, after=world)
    agents.append(run.add(index))
    run.trains(3, after=world)
    codes = run.finish(*agents)
    assert codes.pop(index) == 128 + signal.SIGKILL
    assert codes == [0, 0, 0]
    run.check(processes=4 + run.started_again())
    print("MEASURED", pauses(run.steps()))


@pytest.mark.guarantee("jax-worlds")
def test_a_process_starts_again_if_the_loss_of_another_does_not_end_its_collective(
    local_job: LocalJob,
) -> None:
    # As Gloo does when a process is killed that has sent a part of a message.
    run = run_of(local_job)
    agents = [run.add(index) for index in range(3)]
    world = run.trains(3)
    (local_job.folder / f"hang-{child_of(agents[1]).pid}").touch()
    local_job.wait_for_line("hangs")
    child_of(agents[2]).kill()
    run.trains(2, after=world)
    assert "a collective has not ended with its connections" in local_job.log()
    agents.append(run.add(2))
    run.trains(3, after=world)
    assert run.finish(*agents) == [0, 0, 128 + signal.SIGKILL, 0]
    run.check(processes=4 + run.started_again())


@pytest.mark.guarantee("jax-worlds")
def test_the_others_continue_while_the_pod_of_rank_0_is_frozen_and_after_it_wakes_up(
    local_job: LocalJob,
) -> None:
    check_a_frozen_pod_of_rank_0(run_of(local_job, lost_seconds=10))


@pytest.mark.guarantee("jax-worlds")
@pytest.mark.parametrize("seed", SEEDS)
def test_no_sample_is_in_the_model_twice_whenever_pods_are_killed(
    local_job: LocalJob, seed: int
) -> None:
    choose = random.Random(seed)
    run = run_of(local_job, PAD=choose.choice(["", "1000000"]), SLOW="0.01")
    check_random_kills(run, choose, pods_only=True)


@pytest.mark.guarantee("jax-worlds")
def test_a_training_that_all_processes_have_left_continues_at_its_checkpoint(
    local_job: LocalJob,
) -> None:
    check_a_stop_of_all_processes(run_of(local_job))


def test_a_member_that_comes_when_the_others_have_finished_finishes_alone(
    local_job: LocalJob,
) -> None:
    check_a_member_that_comes_too_late(run_of(local_job))


def test_an_error_of_the_program_ends_its_process_alone(local_job: LocalJob) -> None:
    check_an_error_of_the_program(run_of(local_job))


@pytest.mark.parametrize("block", ["world.commit()", "pass"])
def test_a_training_outside_of_the_block_of_its_world_fails_at_once(block: str) -> None:
    script = (
        "import elasticjob.jax\n"
        "for world in elasticjob.jax.worlds(elasticjob.jax.State(sum=0)):\n"
        f"    {block}\n"
    )
    environment = {**os.environ, "PYTHONPATH": LIBRARY}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert "RuntimeError: the training is not in `with world:`" in done.stderr
    assert done.returncode == 1


@pytest.mark.guarantee("jax-worlds")
def test_no_sample_is_lost_when_all_processes_are_killed_between_two_checkpoints(
    local_job: LocalJob,
) -> None:
    check_a_loss_of_all_processes(run_of(local_job, SAVED_EVERY="10"))
