"""Tests two masters of one job at the same time.

The earlier one starts no more worlds, and exits when it finds the later one.
"""

from __future__ import annotations

import asyncio
from unittest import mock

import pytest
from elasticjob_api.limits import LEAST_MASTER_FORCE_DELETE_SECONDS, MASTER_FENCE_SECONDS
from elasticjob_master.core.rendezvous.commands import Start
from elasticjob_master.core.rendezvous.events import StateShared, StateStored

from tests.support.master.simulated_agents import SimulatedRendezvous
from tests.support.master.simulated_job import AGENT_TIMEOUT, SimulatedJob
from tests.support.master.virtual_time import VirtualLoop
from tests.support.thorough import some_of

SETTLE_SECONDS = 120


async def live(job: SimulatedJob, *, cut_before: float) -> None:
    """Cut the master off from the store, give it up after a while, and keep changing the world."""
    job.start_master()
    job.scale(4)
    await asyncio.sleep(20)
    assert job.master is not None
    job.master.store.cut = True
    await asyncio.sleep(cut_before)
    earlier = job.give_up_master()
    for _ in range(10):
        agent = job.rng.choice([agent for agent in job.agents.values() if not agent.ended])
        if job.rng.random() < 0.5:
            agent.die(137)
        elif agent.stream is not None:
            agent.stream.broken = True  # it comes back to any of the masters
        await asyncio.sleep(job.rng.choice((0.5, 3.0, 12.0)))
    assert not earlier.ended, "it is away, and does not know"
    earlier.store.cut = False
    await asyncio.sleep(SETTLE_SECONDS)
    assert earlier.ended, "it has found out"
    assert not job.master.ended
    rendezvous = job.master.controller.rendezvous
    running = {
        agent.uid: agent.process.round for agent in job.agents.values() if agent.process is not None
    }
    assert rendezvous.phase == "training", job.state()
    assert (
        set(running) == set(rendezvous.world) == {job.agents[index].uid for index in job.desired}
    ), job.state()
    if not rendezvous.rules.in_process_elastic:
        assert set(running.values()) == {rendezvous.round}, job.state()


@pytest.mark.guarantee("two-masters-at-a-time")
@pytest.mark.parametrize("framework", ["jax", "horovod"])
@pytest.mark.parametrize("seed", some_of(range(8), every=4))
def test_a_master_that_was_given_up_starts_no_world_beyond_the_fence(
    seed: int, framework: str
) -> None:
    loop = VirtualLoop()
    job = SimulatedJob(seed, loop, framework=framework, health={"lost_seconds": 10})
    cut_before = (0.0, 5.0, LEAST_MASTER_FORCE_DELETE_SECONDS)[seed % 3]
    with mock.patch("time.monotonic", loop.time), mock.patch("time.thread_time", float):
        loop.run(live(job, cut_before=cut_before))


def test_a_world_whose_write_took_longer_than_the_fence_is_stored_again_before_it_starts() -> None:
    """Another master may have claimed the state since the write began."""
    job = SimulatedRendezvous(desired=2)
    rendezvous = job.rendezvous
    job.apply(StateShared())
    agents = [job.join(0), job.join(1)]
    assert (rendezvous.round, len(rendezvous.world)) == (1, 2)
    began = job.now
    job.advance(MASTER_FENCE_SECONDS + 0.1)
    job.apply(StateStored(1, began))
    job.advance()
    assert rendezvous.store_needed
    assert not any(agent.inbox for agent in agents)
    job.apply(StateStored(1, job.now))
    job.advance(MASTER_FENCE_SECONDS)
    assert [type(command) for agent in agents for command in agent.inbox] == [Start, Start]


@pytest.mark.guarantee("two-masters-at-a-time")
def test_a_lost_master_is_given_up_after_all_that_it_has_sent_has_arrived() -> None:
    assert LEAST_MASTER_FORCE_DELETE_SECONDS > MASTER_FENCE_SECONDS + AGENT_TIMEOUT
