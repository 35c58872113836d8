"""Checks which processes may read and change the data of the present world."""

from __future__ import annotations

import pytest
from elasticjob_api.refusals import NotCurrent, NotReadyYet
from elasticjob_master.core.rendezvous.current_process import check_current, check_may_commit
from elasticjob_master.core.rendezvous.rules import Rules

from tests.support.master.simulated_agents import SimulatedAgent, SimulatedRendezvous, world_of


def lost_and_back(job: SimulatedRendezvous, agent: SimulatedAgent) -> None:
    """Let the others form a world without an agent that is cut off, and connect it again."""
    job.disconnect(agent)
    agent.ended = True
    job.advance(job.rendezvous.timing.lost + 1)
    job.run_until_quiet()
    agent.ended = False
    job.connect(agent)


def test_processes_of_the_present_world_may_make_all_calls() -> None:
    job, _agents = world_of(2)
    for uid in job.rendezvous.world:
        check_current(job.rendezvous, uid, 1)
        check_may_commit(job.rendezvous, uid, 1)


@pytest.mark.guarantee("member-cut-off")
def test_a_process_outside_of_the_present_world_is_refused() -> None:
    job, (first, second) = world_of(2)
    lost_and_back(job, first)
    assert first.running == 1
    assert second.running == 2
    with pytest.raises(NotCurrent, match="round is 1; it is over, the present one is 2"):
        check_current(job.rendezvous, "0.0", 1)
    with pytest.raises(NotCurrent):
        check_may_commit(job.rendezvous, "0.0", 1)
    check_may_commit(job.rendezvous, "1.0", 2)


def test_a_crashed_process_is_refused_before_the_next_world_begins() -> None:
    job, (first, _second) = world_of(2)
    job.end_process(first, 1, asked=False)
    assert job.rendezvous.round == 1
    with pytest.raises(NotCurrent, match="runs no process of that round any more"):
        check_current(job.rendezvous, "0.0", 1)


def test_a_lost_member_waits_until_it_has_registered_again() -> None:
    job, (first, _second) = world_of(2)
    job.disconnect(first)
    first.ended = True
    job.advance(job.rendezvous.timing.lost + 1)
    job.run_until_quiet()
    with pytest.raises(NotReadyYet):
        check_current(job.rendezvous, "0.0", 1)


def test_a_process_may_still_save_after_a_stop_request() -> None:
    job, agents = world_of(2, desired=3)
    job.join(2)
    job.advance(1)
    job.advance(1)
    assert job.rendezvous.phase == "reforming"
    assert all(agent.running == 1 for agent in agents)
    check_current(job.rendezvous, "0.0", 1)
    check_may_commit(job.rendezvous, "0.0", 1)


@pytest.mark.guarantee("member-cut-off")
def test_a_member_that_is_cut_off_may_not_commit_but_its_calls_are_answered() -> None:
    job, (first, _second) = world_of(2)
    job.disconnect(first)
    check_current(job.rendezvous, "0.0", 1)
    with pytest.raises(NotReadyYet, match="disconnected"):
        check_may_commit(job.rendezvous, "0.0", 1)


def test_a_process_that_continues_from_world_to_world_is_current_in_each() -> None:
    job = SimulatedRendezvous(minimum=1, desired=3, rules=Rules(in_process_elastic=True))
    first = job.join(0)
    job.join(1)
    job.run_until_quiet()
    job.join(2)
    job.run_until_quiet()
    assert job.rendezvous.round > first.running > 0
    check_may_commit(job.rendezvous, "0.0", first.running)
    job.rendezvous.set_world(("1.0", "2.0"))
    with pytest.raises(NotReadyYet, match="not in the world"):
        check_current(job.rendezvous, "0.0", first.running)
