"""Tests the ranks that Horovod's elastic driver gives to members.

Random joins, drains, losses, crashes and restarts of the master change the worlds.
"""

from __future__ import annotations

import pytest
from elasticjob_master.core.rendezvous.commands import HostsUpdated
from elasticjob_master.core.rendezvous.events import DrainOrdered, SuccessorsChanged
from elasticjob_master.persistence.stored_state import StoredMember
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.support.master.random_events import ANY, RandomEvents
from tests.support.master.simulated_agents import SimulatedAgent
from tests.support.master.simulated_horovod import SimulatedHorovod
from tests.support.thorough import examples


class HorovodWorlds(RandomEvents):
    """Any history.

    The processes check their places, and once events end, all train in one world.
    """

    job: SimulatedHorovod

    @initialize(present=st.integers(1, 4), quiet=st.booleans())
    def begin(self, present: int, quiet: bool) -> None:
        self.job = SimulatedHorovod(desired=present)
        for index in range(present):
            self.job.join(index)
        if quiet:
            self.job.run_until_quiet()

    @rule(number=ANY, times=st.integers(1, 3))
    def proceed(self, number: int, times: int) -> None:
        agent = self.pick(
            number, [a for a in self.job.alive() if a.identity.pod_uid in self.job.processes]
        )
        for _ in range(times if agent else 0):
            assert agent is not None
            self.job.proceed(agent)

    @rule(number=ANY, retry=st.booleans())
    def crash(self, number: int, retry: bool) -> None:
        agent = self.pick(number, [a for a in self.job.alive() if a.running])
        if agent:
            self.job.end_process(agent, 137, asked=False, retry=retry)

    @rule()
    def restart_master(self) -> None:
        self.job.restart_master()

    def teardown(self) -> None:
        job = self.job
        job.run_until_quiet()
        present = {m.uid for m in job.members if m.available}
        rendezvous = job.rendezvous
        world = f"{rendezvous.phase} {rendezvous.round} {rendezvous.world}"
        state = f"{world} {present} {job.processes}"
        assert set(job.training()) == present, state
        assert len(set(job.training().values())) <= 1, state
        # A new process that has left before the others had heard of it changes nothing for them.
        assert not present or present in (set(job.rendezvous.world), job.rendezvous.settled_uids), (
            state
        )


TestHorovodWorlds = HorovodWorlds.TestCase
TestHorovodWorlds.settings = settings(max_examples=examples(200), stateful_step_count=40)


def world_of(count: int) -> tuple[SimulatedHorovod, list[SimulatedAgent]]:
    job = SimulatedHorovod(desired=count)
    agents = [job.join(index) for index in range(count)]
    job.run_until_quiet()
    assert len(job.training()) == count
    return job, agents


def prepared(job: SimulatedHorovod, index: int, *, steps: int = 2) -> SimulatedAgent:
    """Let another member join, whose process then takes some steps."""
    new = job.join(index)
    job.advance(2.0)
    job.handle_command(new)
    for _ in range(steps):
        job.proceed(new)
    return new


def announced(agents: list[SimulatedAgent]) -> list[int]:
    return [
        command.round
        for agent in agents
        for command in agent.inbox
        if isinstance(command, HostsUpdated)
    ]


@pytest.mark.guarantee("unchanged-horovod-elastic")
def test_the_others_train_until_a_new_process_has_imported_its_packages() -> None:
    job, agents = world_of(2)
    new = prepared(job, 2, steps=0)
    job.advance(60.0)
    assert not announced(agents)
    assert len(job.training()) == 2
    job.proceed(new)
    job.proceed(new)
    assert announced(agents) == [job.rendezvous.round] * 2
    job.run_until_quiet()
    assert len(job.training()) == 3
    assert job.first_states == 1


@pytest.mark.guarantee("unchanged-horovod-elastic")
def test_processes_with_the_state_continue_at_once_after_a_crash() -> None:
    job, agents = world_of(3)
    job.end_process(agents[2], 137, asked=False, retry=True)
    for agent in agents[:2]:
        job.proceed(agent)
    job.proceed(agents[0])
    assert set(job.training()) == {"0.0", "1.0"}
    job.run_until_quiet()
    assert len(job.training()) == 3
    assert job.first_states == 1


@pytest.mark.guarantee("unchanged-horovod-elastic")
def test_a_new_process_that_crashes_while_it_imports_interrupts_no_other() -> None:
    job, agents = world_of(2)
    job.end_process(prepared(job, 2, steps=0), 1, asked=False)
    job.advance(5.0)
    assert not announced(agents)
    job.run_until_quiet()
    assert not announced(agents)
    assert len(job.training()) == 2


def test_a_drained_member_leaves_at_a_commit_and_gets_no_signal_before_half_of_its_time() -> None:
    job, agents = world_of(3)
    job.apply(DrainOrdered({agents[1].identity.pod_name: 20.0}))
    job.advance(9.0)
    assert [type(command) for command in agents[1].inbox] == [HostsUpdated]
    job.run_until_quiet()
    assert set(job.training()) == {"0.0", "2.0"}
    assert job.first_states == 1


@pytest.mark.guarantee("unchanged-horovod-elastic")
def test_the_last_member_that_has_the_state_stays_until_another_has_it() -> None:
    job, agents = world_of(1)
    job.apply(SuccessorsChanged(frozenset({("worker", 1)})))
    job.join(1)
    job.apply(DrainOrdered({agents[0].identity.pod_name: 20.0}))
    job.run_until_quiet()
    assert set(job.training()) == {"1.0"}
    assert job.first_states == 1, "it has begun from nothing"


def test_fewer_than_the_least_number_wait_for_others_and_keep_their_state() -> None:
    job = SimulatedHorovod(minimum=2, desired=2)
    agents = [job.join(index) for index in range(2)]
    job.run_until_quiet()
    job.kill(agents[1])
    job.run_until_quiet()
    assert not job.training()
    job.join(1)
    job.run_until_quiet()
    assert set(job.training()) == {"0.0", "1.1"}
    assert job.first_states == 1


def test_late_members_end_and_no_training_restarts_after_a_worker_has_finished() -> None:
    job, agents = world_of(2)
    late = prepared(job, 2, steps=1)
    job.end_process(agents[0], 0, asked=False)
    job.run_until_quiet()
    job.end_process(agents[1], 0, asked=False)
    job.run_until_quiet()
    assert late.ended
    assert job.first_states == 1


def half_begun() -> tuple[SimulatedHorovod, list[SimulatedAgent], list[StoredMember]]:
    """Return a job whose world of three has begun for one member, and the state stored before."""
    job, agents = world_of(2)
    agents.append(prepared(job, 2))
    for agent in agents[:2]:
        job.handle_command(agent)
    job.proceed(agents[0])  # the commit
    job.proceed(agents[0])
    stored = job.stored_members()
    job.proceed(agents[1])
    assert set(job.training()) == {"1.0"}
    return job, agents, stored


@pytest.mark.parametrize("leaving", [0, 2])
def test_a_world_that_has_begun_is_not_changed_before_each_of_its_members_has_its_place(
    leaving: int,
) -> None:
    job, agents, _ = half_begun()
    begun = job.rendezvous.round
    job.apply(DrainOrdered({agents[leaving].identity.pod_name: 60.0}))
    job.advance(5.0)
    assert job.rendezvous.round == begun
    job.run_until_quiet()
    assert set(job.training()) == {agent.identity.pod_uid for agent in agents} - {
        agents[leaving].identity.pod_uid
    }
    assert job.first_states == 1


def test_a_process_that_waits_for_a_new_one_continues_at_once_if_that_crashes() -> None:
    job, agents = world_of(2)
    new = prepared(job, 2)
    for agent in agents:
        job.handle_command(agent)
    job.proceed(agents[0])  # the commit
    job.proceed(agents[0])
    job.end_process(new, 137, asked=False, retry=True)
    for agent in agents:
        job.proceed(agent)
    job.proceed(agents[0])
    assert set(job.training()) == {"0.0", "1.0"}, (
        "they wait until it has imported its packages again"
    )
    job.run_until_quiet()
    assert len(job.training()) == 3
    assert job.first_states == 1


def test_a_master_that_does_not_know_whether_a_world_has_begun_changes_nothing_before_it_does() -> (
    None
):
    job, agents, stored = half_begun()
    job.restart_master(stored)
    begun = job.rendezvous.round
    job.connect(agents[0])
    job.apply(DrainOrdered({agents[2].identity.pod_name: 60.0}))
    job.proceed(agents[0])
    job.advance(5.0)
    assert job.rendezvous.round == begun
    job.connect(agents[1])
    job.proceed(agents[0])
    assert job.training() == {"0.0": begun, "1.0": begun}, (
        "one that was told its place is enough to know it"
    )
    job.run_until_quiet()
    assert set(job.training()) == {"0.0", "1.0"}
    assert job.first_states == 1
