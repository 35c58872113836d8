"""Runs the real PyTorch in processes that continue when the world changes."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
from pathlib import Path

import pytest
from elasticjob_api import names

from tests.support.e2e import pytorch_job
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
SCRIPT = str(Path(__file__).parents[1] / "support" / "torch_worlds.py")

SEEDS = [int(seed) for seed in os.environ.get("SEEDS", "1,2").split(",")]


def run_of(job: LocalJob, *, lost_seconds: int = 30, **environment: str) -> Run:
    return Run(
        job,
        "pytorch",
        pytorch_job.python_since(2, 1),
        SCRIPT,
        environment,
        lost_seconds=lost_seconds,
    )


@pytest.fixture(params=["0", "1"], ids=["by hand", "ddp"])
def run(local_job: LocalJob, request: pytest.FixtureRequest) -> Run:
    return run_of(local_job, DDP=request.param)


def test_a_group_grows_and_shrinks_in_its_running_processes_without_losing_a_step(
    run: Run,
) -> None:
    run.environment[names.ENV_DRAIN_SECONDS] = "120"  # the first two train on for half of it
    agents = [run.add(index) for index in range(2)]
    first = run.trains(2)
    agents += [run.add(index) for index in (2, 3)]
    grown = run.trains(4, after=first)
    for agent in agents[2:]:
        agent.send_signal(signal.SIGTERM)
    last = run.trains(2, after=grown)
    ends = r"process of round \d+ exited with 0 \(requested: True\)"
    waited = rf"(?s){ends}.*{ends}.*round {last}, training"
    assert not re.search(waited, run.job.log()), "the others waited for the ends"
    assert run.finish(*agents) == [0, 0, names.EXIT_DRAINED, names.EXIT_DRAINED]
    run.check(processes=4)
    committed = sorted({(each.step, each.round) for each in run.steps()})
    assert [step for step, _ in committed] == list(range(1, len(committed) + 1))
    print("MEASURED", pauses(run.steps()))


def test_the_others_return_to_their_last_commit_when_a_process_is_killed_in_an_all_reduce(
    local_job: LocalJob,
) -> None:
    run = run_of(local_job, PAD="3000000", SLOW="0")
    agents = [run.add(index) for index in range(3)]
    world = run.trains(3, beyond=5)
    child_of(agents[1]).kill()
    world = run.trains(2, after=world)
    agents.append(run.add(1))
    run.trains(3, after=world)
    codes = run.finish(*agents)
    assert codes == [0, 128 + signal.SIGKILL, 0, 0]
    run.check(processes=4 + run.started_again())
    print("MEASURED", pauses(run.steps()))


def test_the_others_continue_while_the_pod_of_rank_0_is_frozen_and_after_it_wakes_up(
    local_job: LocalJob,
) -> None:
    check_a_frozen_pod_of_rank_0(run_of(local_job, lost_seconds=10))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_sample_is_in_the_model_twice_whenever_processes_are_killed(
    local_job: LocalJob, seed: int
) -> None:
    choose = random.Random(seed)
    run = run_of(local_job, DDP=str(seed % 2), PAD=choose.choice(["", "1000000"]), SLOW="0.01")
    check_random_kills(run, choose)


def test_a_training_that_all_processes_have_left_continues_at_its_checkpoint(
    local_job: LocalJob,
) -> None:
    check_a_stop_of_all_processes(run_of(local_job))


def test_a_member_that_comes_when_the_others_have_finished_finishes_alone(
    local_job: LocalJob,
) -> None:
    check_a_member_that_comes_too_late(run_of(local_job))


def test_one_process_ends_if_a_connection_breaks_between_living_ones_and_the_others_continue(
    local_job: LocalJob,
) -> None:
    run = run_of(local_job, ERROR_SECONDS="20")
    agents = [run.add(index) for index in range(3)]
    world = run.trains(3)
    (local_job.folder / f"cut-{child_of(agents[1]).pid}").touch()
    run.trains(2, after=world)
    assert sorted(run.finish(*agents)) == [0, 0, 1]
    run.check(processes=3)


def test_a_process_whose_last_attempt_to_form_a_group_has_failed_meets_the_others(
    local_job: LocalJob,
) -> None:
    run = run_of(local_job)
    agents = [run.add(0), run.add(1, FAILED_ATTEMPT="1")]
    run.trains(2)
    assert run.finish(*agents) == [0, 0]
    run.check(processes=2)


def test_a_pytorch_whose_store_may_end_the_process_is_refused() -> None:
    python = pytorch_job.python()
    script = "import elasticjob.torch as t; print(t.torch.__version__); next(t.worlds(t.State()))"
    environment = {**os.environ, "PYTHONPATH": LIBRARY}
    done = subprocess.run(
        [python, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    if not done.stdout.startswith(("1.", "2.0")):
        pytest.skip(f"PyTorch of {python} is new")
    assert "elasticjob.torch.worlds needs PyTorch 2.1 or later, and this is" in done.stderr
    assert done.returncode == 1


def test_an_error_of_the_program_ends_its_process_alone(local_job: LocalJob) -> None:
    check_an_error_of_the_program(run_of(local_job))


def test_a_process_that_joins_while_the_training_ends_finishes_with_the_others(
    local_job: LocalJob,
) -> None:
    run = run_of(local_job, SHARDS="60")
    agents = [run.add(index) for index in range(2)]
    run.trains(2)
    agents.append(run.add(2))
    local_job.wait_for_line(r"registered job-worker-2 ")
    assert run.finish(*agents) == [0, 0, 0]
    run.check(processes=0)


def test_no_sample_is_lost_when_all_processes_are_killed_between_two_checkpoints(
    local_job: LocalJob,
) -> None:
    check_a_loss_of_all_processes(run_of(local_job, SAVED_EVERY="10"))
