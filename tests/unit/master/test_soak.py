"""Random histories of a whole simulated job, whose master is killed at any moment.

The training always finishes.
"""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

import pytest

from tests.support.master.simulated_job import SHARDS, SimulatedJob
from tests.support.master.virtual_time import VirtualLoop
from tests.support.thorough import some_of

EVENTS = 12
STABLE_SECONDS = 240
END_SECONDS = 2000


async def live(job: SimulatedJob) -> None:
    """Inject faults into a job, then wait until it is stable, then let it finish."""
    job.start_master()
    job.scale(3)
    await asyncio.sleep(15)
    for _ in range(EVENTS):
        job.inject_fault()
        await asyncio.sleep(job.rng.choice((0.0, 0.05, 0.3, 1.0, 3.0, 12.0)))
    await asyncio.sleep(STABLE_SECONDS)
    assert job.master is not None
    controller = job.master.controller
    rendezvous = controller.rendezvous
    members = {member.uid for member in controller.members}
    there = {agent.uid for agent in job.agents.values() if not agent.ended}
    assert there == {job.agents[index].uid for index in job.desired}, job.state()
    assert members == there, job.state()
    assert rendezvous.phase == "training", job.state()
    assert set(rendezvous.world) == there, job.state()
    running = {a.uid: a.process.round for a in job.agents.values() if a.process is not None}
    rounds = (
        {rendezvous.round} if not controller.framework.in_process_elastic else set(running.values())
    )
    assert set(running) == there, job.state()
    assert set(running.values()) == rounds, job.state()

    if controller.framework.in_process_elastic:
        return  # its end is decided by another role
    job.may_finish = True
    for _ in range(END_SECONDS):
        if all(agent.ended for agent in job.agents.values()):
            break
        await asyncio.sleep(1)
    assert all(agent.ended for agent in job.agents.values()), job.state()
    account = controller.ledgers.get("data").account()
    assert (account.total, account.done, account.leased, account.waiting) == (SHARDS, SHARDS, 0, 0)
    assert job.trained == set(range(SHARDS))


def run(seed: int, framework: str, health: dict[str, Any]) -> None:
    loop = VirtualLoop()
    job = SimulatedJob(seed, loop, framework=framework, health=health)
    with mock.patch("time.monotonic", loop.time), mock.patch("time.thread_time", float):
        loop.run(live(job))


HEALTH = {"lost_seconds": 10, "on_stall": "Restart", "stall_seconds": 20}


@pytest.mark.parametrize("seed", some_of(range(10), every=4))
def test_after_any_faults_a_job_trains_with_all_members_and_every_shard_is_done_once(
    seed: int,
) -> None:
    run(seed, "jax", HEALTH)
