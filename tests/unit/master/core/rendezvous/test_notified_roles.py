"""Roles whose processes continue when the world changes and are notified of the new one.

`onWorldChange: Notify`.
"""

from __future__ import annotations

import pytest
from elasticjob_api.refusals import NotCurrent, NotReadyYet
from elasticjob_master.core.rendezvous.commands import Command, Start, Stop, WorldChanged
from elasticjob_master.core.rendezvous.current_process import check_current, check_may_commit
from elasticjob_master.core.rendezvous.events import (
    StateRestored,
    StateShared,
    StateStored,
    TrainingHung,
)
from elasticjob_master.core.rendezvous.rules import RoleSize
from elasticjob_master.core.rendezvous.state import RendezvousState
from elasticjob_master.persistence.snapshot import restore_member, store_member
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.master.changed_settings import changed_settings
from tests.support.master.simulated_agents import SimulatedAgent, SimulatedRendezvous


class Job(SimulatedRendezvous):
    """A job whose workers are notified of each world, and all commands to them."""

    def __init__(self, workers: int = 2, **roles: RoleSize) -> None:
        super().__init__()
        self.apply(
            changed_settings(
                self.rendezvous, sizes={"worker": RoleSize(1, 3, notified=True), **roles}
            )
        )
        self.commands: list[Command] = []
        self.workers = [self.join(index) for index in range(workers)]
        for role in roles:
            self.join(0, role)
        self.run_until_quiet()
        self.commands.clear()

    def check(self, command: Command) -> None:
        super().check(command)
        self.commands.append(command)
        if isinstance(command, WorldChanged):
            assert command.round == self.rendezvous.round, "only the present world is told"
            assert command.uid in self.rendezvous.world

    def stops(self) -> list[Stop]:
        return [command for command in self.commands if isinstance(command, Stop)]

    def run(self, seconds: float) -> None:
        """Let the agents that are connected handle their commands for some time."""
        for _ in range(int(seconds / 0.25)):
            self.advance(0.25)
            self.handle_all()


def uid(agent: SimulatedAgent) -> str:
    return agent.identity.pod_uid


@pytest.mark.guarantee("notified-processes")
def test_a_notified_process_is_sent_each_world_once_and_is_not_restarted() -> None:
    job = Job()
    third = job.join(2)
    job.run_until_quiet()
    job.drain(third)
    job.run_until_quiet()
    assert job.rendezvous.round == 3
    assert [(each.starts, each.notified) for each in job.workers] == [([1], [2, 3])] * 2
    assert third.ended
    assert job.stops() == []


@pytest.mark.guarantee("notified-processes")
def test_a_member_of_a_world_whose_others_have_finished_before_it_finishes_alone() -> None:
    job = Job()
    for worker in job.workers:
        worker.deaf = True  # it has ended its training, and asks for no other world
    late = job.join(2)
    job.run(5.0)
    assert job.rendezvous.round == 2
    assert late.starts == [2]
    job.end_process(job.workers[0], 0, asked=False)
    job.run(5.0)
    assert job.rendezvous.round == 2, "the other one ends, too, and changes no further world"
    job.end_process(job.workers[1], 0, asked=False)
    job.run(5.0)
    assert job.rendezvous.world == (uid(late),)
    assert late.notified == [3]
    assert late.starts == [2]
    assert job.stops() == []


def test_after_some_time_it_does_not_wait_for_a_process_that_does_not_end() -> None:
    job = Job()
    for worker in job.workers:
        worker.deaf = True
    late = job.join(2)
    job.run(5.0)
    job.end_process(job.workers[0], 0, asked=False)
    job.run(150.0)
    assert late.notified[:1] == [3]
    assert uid(job.workers[0]) not in job.rendezvous.world


def test_other_roles_with_restart_are_started_again() -> None:
    job = Job(trainer=RoleSize(1, 1))
    job.join(2)
    job.run_until_quiet()
    trainer = next(agent for agent in job.alive() if agent.identity.role == "trainer")
    assert trainer.starts == [1, 2]
    assert [each.starts for each in job.workers] == [[1]] * 2


@pytest.mark.guarantee("notified-processes")
def test_before_it_has_taken_the_new_world_it_may_lease_but_not_commit() -> None:
    job = Job()
    first = job.workers[0]
    first.deaf = True
    job.join(2)
    job.run(5.0)
    assert first.notified == [2]
    assert check_current(job.rendezvous, uid(first), 1).uid == uid(first)
    with pytest.raises(
        NotCurrent,
        match=r"in the world of round 1, the present one is 2: call next_world\(\) first",
    ):
        check_may_commit(job.rendezvous, uid(first), 1)
    check_may_commit(job.rendezvous, uid(job.workers[1]), 1)
    job.take_world(first)
    check_may_commit(job.rendezvous, uid(first), 1)


def test_a_leaving_member_may_save_until_it_has_left() -> None:
    job = Job()
    job.join(2)
    job.run_until_quiet()
    job.drain(job.workers[0])
    job.advance(1.0)
    check_may_commit(job.rendezvous, uid(job.workers[0]), 1)


@pytest.mark.guarantee("notified-processes")
def test_only_a_process_that_does_not_take_the_world_is_restarted_in_it() -> None:
    job = Job()
    deaf, other = job.workers
    deaf.deaf = True
    job.join(2)
    job.run(25.0)
    assert job.stops() == [], "it has drainSeconds"
    job.run(15.0)
    (stop,) = job.stops()
    assert (stop.uid, stop.round, stop.grace_seconds) == (uid(deaf), 1, job.rendezvous.timing.stop)
    assert stop.reason == "it has not taken a new world within 30 s, so it is started again"
    assert deaf.starts == [1, 2]
    assert (other.starts, other.notified) == ([1], [2])
    assert (job.rendezvous.round, job.rendezvous.phase) == (2, "training"), (
        "no other world is needed"
    )
    check_may_commit(job.rendezvous, uid(deaf), 2)


def test_worlds_that_follow_each_other_give_no_more_time() -> None:
    job = Job()
    deaf = job.workers[0]
    deaf.deaf = True
    job.join(2)
    job.run(20.0)
    job.drain(job.workers[1])
    job.run(15.0)
    assert deaf.starts == [1, 3]


def test_a_process_that_takes_a_world_late_has_full_time_for_the_next() -> None:
    job = Job()
    slow = job.workers[0]
    slow.deaf = True
    job.join(2)
    job.run(20.0)
    job.take_world(slow)
    job.drain(job.workers[1])
    job.run(25.0)
    assert (slow.starts, slow.notified) == ([1], [2, 3])


def test_the_time_to_take_a_world_does_not_count_while_disconnected() -> None:
    job = Job()
    deaf = job.workers[0]
    deaf.deaf = True
    job.join(2)
    job.run(25.0)
    job.disconnect(deaf)
    job.run(6.0)
    job.connect(deaf)
    job.run(25.0)
    assert job.stops() == []
    job.run(10.0)
    assert [stop.uid for stop in job.stops()] == [uid(deaf)]


def test_a_process_that_was_cut_off_continues_and_is_sent_only_the_newest_world() -> None:
    job = Job()
    cut_off = job.workers[0]
    job.disconnect(cut_off)
    job.join(2)
    job.run(6.0)
    with pytest.raises(NotReadyYet):
        check_may_commit(job.rendezvous, uid(cut_off), 1)
    job.connect(cut_off)
    job.run_until_quiet()
    assert (cut_off.starts, cut_off.notified) == ([1], [job.rendezvous.round])
    assert uid(cut_off) in job.rendezvous.world


@pytest.mark.guarantee("notified-processes")
def test_a_lost_process_is_killed_when_it_reconnects_because_others_have_its_shards() -> None:
    job = Job()
    lost = job.workers[0]
    job.disconnect(lost)
    job.run(11.0)
    assert uid(lost) in job.leases_lost
    job.connect(lost)
    (stop,) = job.stops()
    assert (stop.uid, stop.grace_seconds) == (uid(lost), 0.0)
    with pytest.raises(NotCurrent):
        check_current(job.rendezvous, uid(lost), 1)
    job.run_until_quiet()
    assert lost.starts == [1, job.rendezvous.round]
    assert job.workers[1].starts == [1]


def test_a_crash_does_not_stop_the_others_and_the_crashed_one_is_started_in_the_next_world() -> (
    None
):
    job = Job(3)
    job.end_process(job.workers[0], 1, asked=False, retry=True)
    job.run_until_quiet()
    assert job.workers[0].starts == [1, 2]
    assert [(each.starts, each.notified) for each in job.workers[1:]] == [([1], [2])] * 2


def test_a_crash_before_the_new_world_is_taken_ends_like_any_other() -> None:
    job = Job()
    first = job.workers[0]
    first.deaf = True
    job.join(2)
    job.run(5.0)
    job.end_process(first, 1, asked=False, retry=True)
    job.run_until_quiet()
    assert first.starts == [1, 3]
    assert job.workers[1].notified == [2, 3]


def test_a_training_that_hangs_is_started_again() -> None:
    job = Job()
    job.apply(TrainingHung())
    job.run_until_quiet()
    assert {stop.grace_seconds for stop in job.stops()} == {0.0}
    assert [each.starts for each in job.workers] == [[1, 2]] * 2


@pytest.mark.guarantee("notified-processes")
def test_a_new_master_sends_the_world_again_to_processes_that_have_not_taken_it() -> None:
    job = Job()
    first, second = job.workers
    first.deaf = True
    third = job.join(2)
    job.run(5.0)
    old = job.rendezvous
    stored = [store_member(member) for member in old.members]
    job.begin_state(RendezvousState(timing=old.timing, sizes=old.sizes))
    members = tuple(restore_member(member, job.now) for member in stored)
    job.apply(StateRestored(members, old.phase, old.round, old.world))
    job.commands.clear()
    for agent in (first, second, third):
        job.connect(agent)
    assert job.commands == [WorldChanged(uid(first), 2)]
    assert job.rendezvous.round == 2


def test_an_unstored_world_is_not_sent_to_notified_processes() -> None:
    job = Job()
    job.apply(StateShared())
    job.apply(StateStored(1, job.now))
    third = job.join(2)
    job.run(1.0)
    job.apply(StateStored(1, job.now))
    job.run(3.0)
    assert job.rendezvous.round == 2
    assert not [command for command in job.commands if isinstance(command, Start | WorldChanged)]
    job.apply(StateStored(2, job.now))
    job.run(1.0)
    assert third.starts == [2]
    assert [each.notified for each in job.workers] == [[2]] * 2


EVENTS = ("join", "drain", "kill", "disconnect", "crash", "deaf", "take", "time")


def play(job: Job, history: list[tuple[str, int]]) -> dict[str, int]:
    """Let events happen, each to an agent that is alive.

    Return in which world a process has finished, by the UID of its pod.
    """
    finished_in = {}
    for event, number in history:
        agents = job.alive()
        agent = agents[number % len(agents)] if agents else None
        if event == "join" and not any(a.identity.index == number for a in agents):
            job.join(number)
        elif agent is None:
            pass
        elif event == "drain":
            job.drain(agent)
        elif event in ("kill", "disconnect", "crash"):
            job.fail(event, agent, retry=bool(number % 2))
        elif event == "deaf":
            agent.deaf = True
        elif event == "take" and agent.running:
            job.take_world(agent)
        elif event == "finish" and agent.running:
            finished_in[uid(agent)] = max(agent.running, agent.joined)
            job.end_process(agent, 0, asked=False)
        job.advance(4.0 * number if event == "time" else 0.1)
        job.handle_all()
    for agent in job.alive():
        agent.deaf = False
    return finished_in


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 9)), max_size=14))
def test_after_any_history_all_processes_have_taken_one_world(
    history: list[tuple[str, int]],
) -> None:
    job = Job()
    play(job, history)
    if not job.alive():
        job.join(0)
    job.run_until_quiet()
    if not job.alive():
        job.join(1)
        job.run_until_quiet()
    now = job.rendezvous
    assert now.phase == "training"
    assert set(now.world) == {uid(agent) for agent in job.alive()}
    for agent in job.alive():
        assert max(agent.running, agent.joined) == now.round
        assert agent.notified == sorted(set(agent.notified)), "each world is told once"
        check_may_commit(now, uid(agent), agent.running)


@example([("finish", 0)])
@given(st.lists(st.tuples(st.sampled_from((*EVENTS, "finish")), st.integers(0, 9)), max_size=14))
def test_after_any_history_no_process_waits_for_one_that_has_finished_in_an_earlier_world(
    history: list[tuple[str, int]],
) -> None:
    job = Job()
    job.workers[0].deaf = True
    job.join(2)
    job.run(5.0)
    finished_in = play(job, history)
    job.run_until_quiet()
    now = job.rendezvous
    for agent in job.alive():
        if max(agent.running, agent.joined) == now.round:
            assert {finished_in.get(each, now.round) for each in now.world} == {now.round}
