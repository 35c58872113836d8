"""Runs FSDP2 of the real PyTorch in processes that continue when the world changes."""

from __future__ import annotations

import os
import random
import re
import signal
from pathlib import Path

import pytest
from elasticjob._sharding import Place, peers
from elasticjob_api import names

from tests.support.e2e import pytorch_job
from tests.support.e2e.continuing_job import (
    Run,
    check_a_loss_of_all_processes,
    check_a_stop_of_all_processes,
    check_random_kills,
    child_of,
    pauses,
)
from tests.support.local_job import LocalJob

pytestmark = pytest.mark.thorough
SCRIPT = str(Path(__file__).parents[1] / "support" / "torch_fsdp_worlds.py")
SEEDS = [int(seed) for seed in os.environ.get("SEEDS", "1,2").split(",")]


def run_of(job: LocalJob, *, least: int = 2, **environment: str) -> Run:
    python = pytorch_job.python_since(2, 6)
    return Run(job, "pytorch", python, SCRIPT, environment, lost_seconds=30, least=least)


def check_states(run: Run, *, all_kept: bool = True) -> None:
    """Check that each world begins with a commit, bit for bit; if `all_kept`, with the last one."""
    log = run.job.log()
    states: dict[str, set[str]] = {}
    for step, digest in re.findall(r"^[\d.]+ \d+ state (\d+) (\w+)$", log, re.MULTILINE):
        states.setdefault(step, set()).add(digest)
    begun = re.findall(r"world: rank \d+ of \d+ round (\d+) step (\d+) (\w+)$", log, re.MULTILINE)
    for round_, step, digest in begun:
        before = [each.step for each in run.steps() if each.round < int(round_)]
        assert int(step) >= max(before, default=0) or not all_kept, f"round {round_} lost a commit"
        assert not int(step) or digest in states[step], f"round {round_} has another state"


@pytest.mark.parametrize("hybrid", ["0", "1"])
def test_four_processes_become_three_and_four_when_one_is_killed_and_one_joins(
    local_job: LocalJob, hybrid: str
) -> None:
    run = run_of(local_job, HYBRID=hybrid)
    run.environment[names.ENV_DRAIN_SECONDS] = "120"
    agents = [run.add(index) for index in range(4)]
    world = run.trains(4, beyond=5)
    child_of(agents[1]).kill()
    world = run.trains(3, after=world)
    assert agents.pop(1).wait() == 128 + signal.SIGKILL
    agents.append(run.add(1))
    run.trains(4, after=world)
    assert run.finish(*agents) == [0, 0, 0, 0]
    check_states(run)
    run.check(processes=0)  # one starts again if Gloo has forgotten a receive from the killed rank
    print("MEASURED", pauses(run.steps()))


def test_members_that_leave_together_give_their_parts_to_those_that_stay(
    local_job: LocalJob,
) -> None:
    run = run_of(local_job, least=1)
    agents = [run.add(index) for index in range(4)]
    world = run.trains(4)
    for agent in agents[2:]:
        agent.send_signal(signal.SIGTERM)
    world = run.trains(2, after=world)
    agents[1].send_signal(signal.SIGTERM)
    world = run.trains(1, after=world)
    agents.append(run.add(1))
    run.trains(2, after=world)
    drained = names.EXIT_DRAINED
    assert run.finish(*agents) == [0, drained, drained, drained, 0]
    check_states(run)
    run.check(processes=5)
    print("MEASURED", pauses(run.steps()))


def test_a_kill_in_the_middle_of_a_commit_leaves_that_commit_or_the_one_before(
    local_job: LocalJob,
) -> None:
    run = run_of(local_job, DIE_AT="1:8", SLOW="0.01")
    agents = [run.add(index) for index in range(3)]
    world = run.trains(3)
    run.trains(2, after=world)
    codes = run.finish(*agents)
    assert sorted(codes) == [0, 0, 128 + signal.SIGKILL]
    check_states(run)
    run.check(processes=3)


@pytest.mark.parametrize("seconds", ["0.03", "0.1"])
def test_a_kill_while_a_part_is_sent_loses_no_commit_although_gloo_may_forget_the_receive(
    local_job: LocalJob, seconds: str
) -> None:
    run = run_of(local_job, DIE_AT="1:4", DIE_SECONDS=seconds, PAD="4000000", SLOW="0.01")
    run.environment[names.ENV_DRAIN_SECONDS] = "10"
    agents = [run.add(index) for index in range(3)]
    world = run.trains(3)
    run.trains(2, after=world)
    codes = run.finish(*agents)
    assert sorted(codes) == [0, 0, 128 + signal.SIGKILL]
    assert "are lost; the training continues from" not in local_job.log()
    check_states(run)
    run.check(processes=0)
    print("MEASURED", pauses(run.steps()), run.started_again())


@pytest.mark.parametrize(("size", "saved_every"), [(3, "5"), (4, "5"), (4, "")])
def test_two_ranks_with_the_only_copies_that_are_lost_at_once_cost_the_steps_since_the_checkpoint(
    local_job: LocalJob, size: int, saved_every: str
) -> None:
    run = run_of(local_job, least=1, SAVED_EVERY=saved_every)
    agents = [run.add(index) for index in range(size)]
    world = run.trains(size, beyond=6)
    ranks = {each.process: each.rank for each in run.steps() if each.round == world}
    by_rank = {ranks[child_of(agent).pid]: agent for agent in agents}
    places = [Place("", f"job-worker-{agents.index(by_rank[rank])}") for rank in range(size)]
    pair = next(pair for pair in peers(places).items() if 0 not in pair)
    lost = [(by_rank[rank], child_of(by_rank[rank])) for rank in pair]
    for _, process in lost:
        process.suspend()  # none of them commits without the other
    for agent, process in lost:
        process.kill()
        agent.kill()
    world = run.trains(size - 2, after=world)
    begun = min(each.step for each in run.steps() if each.round == world)
    assert begun % 5 == 1, "it begins at a checkpoint"
    assert begun > 5 or not saved_every
    assert "those of a rank and of the one with its copies are lost" in local_job.log()
    left = [agent for agent in agents if agent.poll() is None]
    assert run.finish(*left) == [0] * (size - 2)
    run.check(processes=size)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_sample_is_in_a_divided_model_twice_whenever_processes_are_killed(
    local_job: LocalJob, seed: int
) -> None:
    choose = random.Random(seed)
    run = run_of(local_job, PAD=choose.choice(["", "100000"]), SLOW="0.01", SAVED_EVERY="20")
    check_random_kills(run, choose)
    check_states(run, all_kept=False)


def test_a_training_that_all_ranks_have_left_together_continues_after_its_last_step(
    local_job: LocalJob,
) -> None:
    check_a_stop_of_all_processes(run_of(local_job))


def test_no_sample_is_lost_when_all_ranks_are_killed_between_two_checkpoints(
    local_job: LocalJob,
) -> None:
    check_a_loss_of_all_processes(run_of(local_job, SAVED_EVERY="10"))
