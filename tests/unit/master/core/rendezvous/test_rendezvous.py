"""The rendezvous, with random sequences of joins, drains, losses, crashes and reconnections."""

from __future__ import annotations

from dataclasses import replace

import pytest
from elasticjob_api import names
from elasticjob_api.elasticjob import FailureAction
from elasticjob_api.refusals import NotCurrent
from elasticjob_master.core.rendezvous.advance import advance
from elasticjob_master.core.rendezvous.commands import Drain, Exit, Start, Stop
from elasticjob_master.core.rendezvous.events import (
    DrainOrdered,
    MasterStalled,
    StateRestored,
    SuccessorsChanged,
)
from elasticjob_master.core.rendezvous.member_events import (
    MemberConnected,
    MemberDisconnected,
    MemberLeaving,
    MemberRegistered,
)
from elasticjob_master.core.rendezvous.rules import RoleSize, Rules, Timing
from elasticjob_master.core.rendezvous.state import RendezvousState
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tests.support.master.changed_settings import changed_settings
from tests.support.master.random_events import ANY, RandomEvents
from tests.support.master.simulated_agents import (
    MINIMUM,
    SimulatedAgent,
    SimulatedRendezvous,
    world_of,
)
from tests.support.thorough import examples


class Worlds(RandomEvents):
    """Any history.

    The invariants of worlds hold at every moment, and once events end, a world is formed.
    """

    in_process_elastic = False

    @initialize(desired=st.integers(MINIMUM, 4), present=st.integers(0, 4), quiet=st.booleans())
    def begin(self, desired: int, present: int, quiet: bool) -> None:
        self.job = SimulatedRendezvous(
            desired=desired, rules=Rules(in_process_elastic=self.in_process_elastic)
        )
        self.finished = False
        self.ended: set[tuple[int, str]] = set()
        """The round and UID of each member that runs no process in that round any more."""
        for index in range(present):
            self.job.join(index)
        if quiet:
            self.job.run_until_quiet()

    @rule(number=ANY, code=st.sampled_from([1, 134, 137]), retry=st.booleans())
    def crash(self, number: int, code: int, retry: bool) -> None:
        agent = self.pick(number, [a for a in self.job.alive() if a.running])
        if agent:
            self.job.end_process(agent, code, asked=False, retry=retry)

    @rule(number=ANY)
    def node_shuts_down(self, number: int) -> None:
        agent = self.pick(number, [a for a in self.job.alive() if a.connected])
        if agent:
            agent.draining = True
            self.job.apply(MemberLeaving(agent.identity.pod_uid))
            self.job.advance()

    @precondition(lambda self: len(self.job.agents) > 2)
    @rule(number=ANY)
    def finish(self, number: int) -> None:
        agent = self.pick(
            number,
            [a for a in self.job.alive() if a.running and a.running == self.job.rendezvous.round],
        )
        if agent:
            self.job.end_process(agent, 0, asked=False)
            self.finished = self.finished or self.job.rendezvous.finished_at is not None

    @invariant()
    def a_member_is_in_a_world_once(self) -> None:
        world = self.job.rendezvous.world
        assert len(set(world)) == len(world)

    @invariant()
    def a_member_that_has_ended_runs_no_process_in_this_round(self) -> None:
        """Otherwise a barrier would be given up that can still be passed."""
        rendezvous = self.job.rendezvous
        for agent in self.job.alive():
            uid = agent.identity.pod_uid
            assert not agent.running or (agent.running, uid) not in self.ended
        known = (uid for uid in rendezvous.ended_members() if rendezvous.members.get(uid))
        self.ended |= {(rendezvous.round, uid) for uid in known}

    def teardown(self) -> None:
        job = self.job
        job.run_until_quiet()
        self.finished = (
            self.finished or job.rendezvous.finished_at is not None
        )  # reported when the stream came back
        present = [m.uid for m in job.members if m.available]
        rendezvous = job.rendezvous
        state = f"{rendezvous.phase} round {rendezvous.round} world {rendezvous.world} {present}"
        assert all(not agent.draining or agent.ended for agent in job.alive()), state
        if not self.finished and len(present) >= MINIMUM:
            assert job.rendezvous.phase == "training", state
            assert job.rendezvous.confirmed_at is not None, state
            assert set(job.rendezvous.world) == set(present), state
            if not self.in_process_elastic:
                assert set(job.running()) == set(present), state
        elif not self.finished and not self.in_process_elastic:
            assert not [a for a in job.alive() if a.running], state


class WorldsThatAdapt(Worlds):
    in_process_elastic = True


TestWorlds = Worlds.TestCase
TestWorlds.settings = settings(max_examples=examples(150), stateful_step_count=40)
TestWorldsThatAdapt = WorldsThatAdapt.TestCase
TestWorldsThatAdapt.settings = settings(max_examples=examples(80), stateful_step_count=40)


def test_the_first_world_waits_a_little_for_all_desired_members() -> None:
    job = SimulatedRendezvous(minimum=1, desired=2)
    job.join(0)
    assert job.rendezvous.round == 0
    job.join(1)
    assert job.rendezvous.world == ("0.0", "1.0")


def test_the_first_world_does_not_wait_for_members_that_never_come() -> None:
    job = SimulatedRendezvous(minimum=1, desired=2)
    job.join(0)
    job.advance(2.5)
    assert job.rendezvous.world == ("0.0",)


def test_a_job_that_begins_again_with_new_pods_waits_for_them_as_in_the_beginning() -> None:
    job, agents = world_of(2)
    for agent in agents:
        job.kill(agent)
    job.run_until_quiet()
    job.join(0)
    job.advance(1.5)
    assert job.rendezvous.round == 1
    job.join(1)
    assert (job.rendezvous.round, len(job.rendezvous.world)) == (2, 2)


def test_all_ready_waits_for_all() -> None:
    job = SimulatedRendezvous(minimum=1, desired=2, rules=Rules(all_ready=True))
    job.join(0)
    job.advance(9.0)
    assert job.rendezvous.round == 0
    job.join(1)
    assert job.rendezvous.round == 1


def test_joins_that_come_together_make_one_new_world() -> None:
    job, _ = world_of(2, desired=4)
    before = job.rendezvous.round
    job.join(2)
    job.advance(0.3)
    job.join(3)
    job.run_until_quiet()
    assert job.rendezvous.round == before + 1
    assert len(job.rendezvous.world) == 4


@pytest.mark.guarantee("changed-roles")
def test_a_world_trains_on_until_enough_have_joined_for_the_next_one() -> None:
    job, _ = world_of(2)
    before = job.rendezvous.round
    job.apply(changed_settings(job.rendezvous, sizes={"worker": RoleSize(4, 4)}))
    job.join(2)
    job.run_until_quiet()
    assert (job.rendezvous.round, job.rendezvous.phase) == (before, "training"), (
        "stopped for a world that cannot be"
    )
    job.join(3)
    job.run_until_quiet()
    assert (job.rendezvous.round, len(job.rendezvous.world)) == (before + 1, 4)


def test_a_drained_member_stops_with_the_others_and_leaves() -> None:
    job, agents = world_of(3)
    job.drain(agents[1])
    assert [type(agent.inbox[0]) for agent in agents] == [Stop, Drain, Stop]
    assert all(c.grace_seconds > 0 for a in agents for c in a.inbox if isinstance(c, (Stop, Drain)))
    job.run_until_quiet()
    assert job.rendezvous.world == ("0.0", "2.0")
    assert job.members.get("1.0") is None


def test_a_migrated_member_and_its_replacement_change_places_in_one_change_of_the_world() -> None:
    job, agents = world_of(2, desired=3)
    before = job.rendezvous.round
    job.apply(SuccessorsChanged(frozenset({("worker", 2)})))
    job.join(2)
    job.run_until_quiet()
    assert job.rendezvous.round == before, "training was interrupted before the old member left"
    job.apply(SuccessorsChanged(frozenset()))
    job.drain(agents[1])
    job.run_until_quiet()
    assert job.rendezvous.round == before + 1
    assert job.rendezvous.world == ("0.0", "2.0")


def test_a_successor_takes_the_place_of_a_lost_member() -> None:
    job, agents = world_of(2, desired=3)
    job.apply(SuccessorsChanged(frozenset({("worker", 2)})))
    job.join(2)
    job.end_process(agents[1], 1, asked=False)
    job.run_until_quiet()
    assert job.rendezvous.world == ("0.0", "2.0")


@pytest.mark.guarantee("ranks-stop-together")
def test_a_member_of_a_world_that_stops_has_ended_with_its_process_or_without_its_start() -> None:
    job, agents = world_of(2)
    assert not job.rendezvous.ended_members()
    job.drain(agents[1])
    assert not job.rendezvous.ended_members(), "both may be saving"
    job.end_process(agents[0], 137, asked=True)
    assert job.rendezvous.ended_members() == {"0.0": agents[0].identity.pod_name}


def test_a_member_that_was_not_started_before_its_world_stops_has_ended() -> None:
    job = SimulatedRendezvous(desired=2)
    agents = [job.join(index) for index in range(2)]
    job.disconnect(agents[0])  # the Start is lost with its stream
    agents[0].inbox.clear()
    assert not job.rendezvous.ended_members(), "it is started when it is back"
    job.drain(agents[1])
    job.connect(agents[0])
    assert job.rendezvous.ended_members() == {"0.0": agents[0].identity.pod_name}


@pytest.mark.guarantee("ranks-stop-together")
def test_a_crashed_member_that_was_removed_and_is_back_is_not_started_in_the_same_round() -> None:
    """The others know that it has ended, and give up the barriers that wait for it."""
    job = SimulatedRendezvous(desired=2, rules=Rules(in_process_elastic=True))
    agents = [job.join(index) for index in range(2)]
    job.handle_all()
    job.end_process(agents[0], 1, asked=False)
    job.disconnect(agents[0])  # and the command to exit is lost
    job.connect(agents[0])
    assert job.rendezvous.ended_members() == {"0.0": agents[0].identity.pod_name}
    job.run_until_quiet()
    assert agents[0].starts == [1, 2]


def test_a_process_that_stops_by_agreement_has_not_succeeded() -> None:
    job, agents = world_of(2)
    job.drain(agents[1])
    job.end_process(agents[0], 0, asked=False)
    job.run_until_quiet()
    assert job.rendezvous.finished_at is None
    assert job.rendezvous.world == ("0.0",)


def test_the_others_of_a_crashed_world_are_stopped_at_once_and_only_the_first_to_crash_leaves() -> (
    None
):
    job, agents = world_of(3)
    job.end_process(agents[1], 1, asked=False)
    job.end_process(agents[2], 134, asked=False)
    job.advance(2.1)
    assert isinstance(agents[1].inbox[0], Exit)
    assert agents[0].inbox[0] == Stop("0.0", 1, 0.0)
    assert not agents[2].ended
    job.run_until_quiet()
    assert job.rendezvous.world == ("0.0", "2.0")


@pytest.mark.guarantee("torchrun-process-fails")
def test_when_all_processes_have_ended_the_first_to_fail_is_known_without_a_wait() -> None:
    job, agents = world_of(3)
    job.end_process(agents[2], 1, asked=False, seconds_ago=0.1)
    job.end_process(agents[0], 1, asked=False, seconds_ago=0.2)
    job.advance()
    assert not any(agent.inbox for agent in agents), "the third may be lost, or have failed before"
    job.end_process(agents[1], 1, asked=False, seconds_ago=0.3)
    assert isinstance(agents[1].inbox[0], Exit)
    assert isinstance(agents[0].inbox[0], Start)
    job.run_until_quiet()
    assert job.rendezvous.world == ("0.0", "2.0")


@pytest.mark.guarantee("torchrun-process-fails")
def test_the_member_that_failed_first_leaves_even_if_others_report_earlier() -> None:
    """Torchrun looks after its processes in intervals.

    The node of the member that is not at fault may end first.
    """
    job, agents = world_of(3)
    job.end_process(agents[2], 1, asked=False, seconds_ago=0.4)
    job.advance(0.3)
    job.end_process(agents[1], 1, asked=False, seconds_ago=0.9)
    job.advance(job.rendezvous.timing.fault_limit - 0.4)
    assert not agents[1].inbox, "the loss of another may still be the cause"
    job.advance(0.2)
    assert isinstance(agents[1].inbox[0], Exit)
    job.run_until_quiet()
    assert job.rendezvous.world == ("0.0", "2.0")


@pytest.mark.guarantee("torchrun-process-fails")
def test_killed_processes_are_at_fault_at_once_whatever_failed_before() -> None:
    """No failure of a member sends SIGKILL to others, so it needs no further evidence."""
    job, agents = world_of(4)
    job.end_process(agents[3], 1, asked=False, seconds_ago=0.1)
    job.end_process(agents[1], 137, asked=False)
    job.end_process(agents[2], 137, asked=False)
    job.advance(job.rendezvous.timing.proven_window + 0.1)
    assert [agent for agent in agents if isinstance((*agent.inbox, None)[0], Exit)] == agents[1:3]
    job.run_until_quiet()
    assert job.rendezvous.world == ("0.0", "3.0")
    assert agents[3].starts == [1, 2], "both losses cost one new world"


@pytest.mark.guarantee("torchrun-process-fails")
def test_a_crash_that_another_one_caused_does_not_count_as_a_retry() -> None:
    job, agents = world_of(3)
    job.end_process(agents[2], 1, asked=False, retry=True)
    job.end_process(agents[1], 1, asked=False, retry=True, seconds_ago=0.4)
    job.run_until_quiet()
    assert [agent.starts for agent in agents] == [[1, 2]] * 3
    assert [agent.excused_in for agent in agents] == [[], [], [2]]


@pytest.mark.guarantee("process-retried-in-its-pod")
def test_a_crash_that_is_retried_in_its_pod_makes_a_new_world_of_the_same_members() -> None:
    job, agents = world_of(3)
    job.end_process(agents[1], 1, asked=False, retry=True)
    job.end_process(agents[2], 134, asked=False)
    job.advance(job.rendezvous.timing.fault_window)
    assert list(agents[0].inbox) == [Stop("0.0", 1, 0.0)]
    job.run_until_quiet()
    assert [agent.starts for agent in agents] == [[1, 2]] * 3
    assert job.rendezvous.world == ("0.0", "1.0", "2.0")


@pytest.mark.guarantee("process-retried-in-its-pod")
def test_a_crash_that_is_retried_no_more_ends_the_member() -> None:
    job, agents = world_of(2)
    job.end_process(agents[1], 1, asked=False, retry=True)
    job.run_until_quiet()
    job.end_process(agents[1], 1, asked=False)
    job.run_until_quiet()
    assert agents[1].ended
    assert agents[0].starts == [1, 2, 3]


@pytest.mark.guarantee("failure-ends-the-job")
def test_the_others_do_not_start_again_after_a_failure_that_ends_the_job() -> None:
    job, agents = world_of(3)
    size = RoleSize(1, 3, without_restarts=frozenset({1}))
    job.apply(changed_settings(job.rendezvous, sizes={"worker": size}))
    job.end_process(agents[1], 1, asked=False)
    end = job.now + job.rendezvous.timing.job_end
    while job.now < end - 1.0:
        job.advance(0.25)
        job.handle_all()
    assert agents[1].ended
    assert [agent.starts for agent in agents] == [[1]] * 3
    job.run_until_quiet()
    assert [agent.starts for agent in agents] == [[1, 2], [1], [1, 2]], "no operator has ended it"


@pytest.mark.guarantee("failure-ends-the-job")
@pytest.mark.parametrize(
    ("code", "action", "last", "ends"),
    [
        (names.EXIT_DRAINED, None, True, False),
        (127, None, False, True),
        (127, "Restart", False, False),
        (42, None, False, False),
        (42, "FailJob", False, True),
        (42, "Restart", True, True),
        (42, "Ignore", True, False),
    ],
)
def test_exit_code_and_restart_rules_say_whether_a_failure_ends_the_job(
    code: int, action: FailureAction | None, last: bool, ends: bool
) -> None:
    job, agents = world_of(2)
    size = RoleSize(
        *(1, 2),
        without_restarts=frozenset({1} if last else ()),
        actions={code: action} if action else {},
    )
    job.apply(changed_settings(job.rendezvous, sizes={"worker": size}))
    job.end_process(agents[1], code, asked=False)
    job.advance(job.rendezvous.timing.fault_window)
    assert (job.rendezvous.end_expected is not None) == ends


def test_the_next_pod_of_the_failed_member_shows_that_the_job_continues() -> None:
    job, agents = world_of(2)
    size = RoleSize(1, 2, without_restarts=frozenset({1}))
    job.apply(changed_settings(job.rendezvous, sizes={"worker": size}))
    job.end_process(agents[1], 1, asked=False)
    job.advance(job.rendezvous.timing.fault_window)
    job.handle_command(agents[1])
    failed_at = job.now
    job.join(1)
    while job.rendezvous.phase != "training" and job.now < failed_at + 10:
        job.advance(0.25)
        job.handle_all()
    assert job.rendezvous.world == ("0.0", "1.1")


def test_members_that_a_forgotten_world_had_lost_already_do_not_break_it() -> None:
    job, agents = world_of(3)
    rendezvous = job.rendezvous
    for agent in agents:
        job.disconnect(agent)
    job.apply(StateRestored((), "training", 1, rendezvous.world))
    agents[2].ended = True  # drained out of round 2, which the stored state does not know
    for agent in agents[:2]:
        agent.running = 2
        job.connect(agent)
    assert agents[0].inbox[0] == Stop("0.0", 2, Timing().stop), (
        "nobody is killed for the absence of the third"
    )
    job.run_until_quiet()
    assert (rendezvous.round, rendezvous.world) == (4, ("0.0", "1.0")), (
        "a number nobody can have had yet"
    )


def test_a_crash_after_the_loss_of_another_member_is_not_counted_against_the_crashed_one() -> None:
    job, agents = world_of(3)
    job.kill(agents[0])
    job.end_process(agents[1], 134, asked=False)
    job.run_until_quiet()
    assert job.rendezvous.world == ("1.0", "2.0")
    assert not agents[1].ended


def test_a_newer_incarnation_takes_the_place_of_a_silent_one_at_once() -> None:
    job, agents = world_of(2)
    agents[1].ended = True  # its node is down, so the master sees no end of the stream
    job.join(1)
    job.run_until_quiet()
    assert job.rendezvous.world == ("0.0", "1.1")


def test_an_older_incarnation_is_refused() -> None:
    job, agents = world_of(2)
    newer = job.join(1)
    with pytest.raises(NotCurrent, match=r"incarnation 1\); pod j-worker-1\.0 \(0\) is not newer"):
        job.members.check_registration(agents[1].identity)
    assert job.members.get(newer.identity.pod_uid) is not None


@pytest.mark.guarantee("network-cut")
def test_a_short_absence_changes_nothing() -> None:
    job, agents = world_of(2)
    job.disconnect(agents[0])
    job.advance(9.0)
    job.connect(agents[0])
    job.run_until_quiet()
    assert job.rendezvous.round == 1
    assert agents[0].starts == [1]


def test_a_long_absence_makes_a_world_without_it_and_another_with_it() -> None:
    job, agents = world_of(2)
    job.disconnect(agents[0])
    job.advance(10.5)
    while agents[1].inbox:
        job.handle_command(agents[1])
    job.advance(1.0)
    assert (job.rendezvous.round, job.rendezvous.world) == (2, ("1.0",))
    job.run_until_quiet()
    assert (job.rendezvous.round, job.rendezvous.world) == (3, ("1.0", "0.0"))


def given_up_while_cut_off() -> tuple[SimulatedRendezvous, SimulatedAgent]:
    """Return a job whose two members train in round 2, and a third that still runs round 1."""
    job, agents = world_of(3)
    job.disconnect(agents[0])
    job.advance(job.rendezvous.timing.lost + 1)
    job.handle_all()
    job.advance(1)
    job.handle_all()
    assert job.rendezvous.round == 2
    assert job.running() == ["1.0", "2.0"]
    assert agents[0].running == 1
    return job, agents[0]


@pytest.mark.guarantee("member-cut-off")
def test_a_process_that_the_others_train_without_is_killed_and_never_asked_to_save() -> None:
    job, agent = given_up_while_cut_off()
    job.connect(agent)
    assert list(agent.inbox) == [Stop("0.0", 1, 0.0)]


@pytest.mark.guarantee("member-cut-off")
@pytest.mark.parametrize("by", ["plan", "node", "failed check"])
def test_a_process_that_the_others_train_without_is_killed_also_when_its_member_leaves(
    by: str,
) -> None:
    job, agent = given_up_while_cut_off()
    if by == "plan":
        job.apply(DrainOrdered({agent.identity.pod_name: 5.0}))
    agent.draining = by == "node"
    job.apply(MemberRegistered(agent.identity))
    if by == "failed check":
        job.members.get("0.0").exiting = True  # type: ignore[union-attr]
    job.connect(agent)
    assert list(agent.inbox) == [Stop("0.0", 1, 0.0)]
    job.handle_command(agent)
    assert isinstance(agent.inbox[0], Exit if by == "failed check" else Drain), "then it leaves"


def test_a_start_that_got_lost_with_its_stream_is_sent_again() -> None:
    job = SimulatedRendezvous(minimum=1, desired=2)
    agents = [job.join(0), job.join(1)]
    job.handle_command(agents[1])
    job.disconnect(agents[0])
    job.connect(agents[0])
    job.run_until_quiet()
    assert job.rendezvous.round == 1
    assert [agent.starts for agent in agents] == [[1], [1]]


@pytest.mark.guarantee("member-lost-before-start")
@pytest.mark.parametrize("how", ["lost", "leaves"])
def test_a_world_is_formed_again_if_the_start_of_a_member_was_lost(how: str) -> None:
    job = SimulatedRendezvous(minimum=1, desired=2)
    agents = [job.join(0), job.join(1)]
    job.handle_command(agents[1])
    job.apply(MemberDisconnected("0.0"))
    job.apply(MemberConnected("0.0"))
    if how == "leaves":
        job.apply(MemberLeaving("0.0"))
    job.kill(agents[0])
    job.run_until_quiet()
    assert job.rendezvous.world == ("1.0",)
    assert agents[1].starts == [1, 2]


def test_a_process_that_ended_without_a_report_makes_a_new_world() -> None:
    job, agents = world_of(2)
    job.disconnect(agents[0])
    agents[0].running = 0
    job.run_until_quiet()
    assert [agent.running for agent in agents] == [2, 2]


def test_a_draining_process_that_fails_does_not_count_as_crashed() -> None:
    job, agents = world_of(2)
    job.drain(agents[1])
    job.end_process(agents[1], 134, asked=False)
    assert isinstance(agents[1].inbox[0], Drain)
    job.run_until_quiet()
    assert job.rendezvous.world == ("0.0",)


def test_a_member_that_does_not_stop_is_taken_for_lost() -> None:
    job, agents = world_of(2, desired=2)
    job.join(2)
    job.advance(1.1)
    assert isinstance(agents[0].inbox[0], Stop)
    job.handle_command(agents[1])
    job.advance(2 * 30 + 10.5)  # twice the grace and a margin
    assert "0.0" not in job.rendezvous.world
    assert job.rendezvous.phase == "training"


def test_members_that_leave_a_finishing_job_change_no_world() -> None:
    job, agents = world_of(3)
    job.end_process(agents[0], 0, asked=False)
    job.drain(agents[2])
    job.run_until_quiet()
    assert job.rendezvous.round == 1
    assert agents[1].running == 1


def test_a_member_that_joins_after_the_others_have_finished_finishes_alone() -> None:
    job, agents = world_of(2)
    job.end_process(agents[0], 0, asked=False)
    late = job.join(2)
    job.run_until_quiet()
    assert late.running == 0, "the finishing world still runs"
    job.end_process(agents[1], 0, asked=False)
    job.run_until_quiet()
    assert job.rendezvous.world == ("2.0",)
    assert late.running == 2


def test_a_restarted_master_continues_with_the_running_world() -> None:
    job, agents = world_of(3)
    old = job.rendezvous
    members = tuple(
        replace(member, disconnected_since=job.now, last_command=None) for member in job.members
    )
    job.begin_state(RendezvousState(sizes=old.sizes))
    job.apply(StateRestored(members, old.phase, old.round, old.world))
    for agent in agents:
        agent.connected = False
    job.advance(1.0)
    for agent in agents:
        job.connect(agent)
    job.run_until_quiet()
    assert job.rendezvous.round == 1
    assert [agent.starts for agent in agents] == [[1], [1], [1]]


def test_a_master_without_memory_uses_no_round_twice() -> None:
    job, agents = world_of(2)
    job.begin_state(RendezvousState(sizes={"worker": RoleSize(1, 2)}))
    for agent in agents:
        agent.connected = False
    job.run_until_quiet()
    assert job.rendezvous.round == 2
    assert [agent.running for agent in agents] == [2, 2]


def test_a_master_that_was_suspended_removes_no_member() -> None:
    job, _ = world_of(2)
    job.apply(MasterStalled(60.0))
    job.now += 60.0
    assert advance(job.rendezvous, job.now) == []
    assert len(job.members) == 2
