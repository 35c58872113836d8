"""Members say that their processes have left a world: nobody waits for them any more."""

from __future__ import annotations

import pytest
from elasticjob_master.core.rendezvous.commands import Drain, Exit
from elasticjob_master.core.rendezvous.member_events import WorldLeft
from elasticjob_master.core.rendezvous.rules import RoleSize
from hypothesis import given
from hypothesis import strategies as st

from tests.support.master.changed_settings import changed_settings
from tests.support.master.simulated_agents import SimulatedAgent, SimulatedRendezvous, world_of


def continuing(count: int) -> tuple[SimulatedRendezvous, list[SimulatedAgent]]:
    """Return a world whose processes continue from world to world."""
    job, agents = world_of(count)
    size = RoleSize(1, count, notified=True)
    job.apply(changed_settings(job.rendezvous, sizes={"worker": size}))
    job.advance()
    return job, agents


def say_left(job: SimulatedRendezvous, agent: SimulatedAgent, *, ends: bool = False) -> None:
    joined = agent.joined or agent.running
    job.apply(WorldLeft(agent.identity.pod_uid, joined, ends))
    job.advance()


@pytest.mark.guarantee("notified-processes")
def test_the_others_do_not_wait_for_the_end_of_a_process_that_has_left_their_world() -> None:
    job, agents = continuing(3)
    leaver = agents[2]
    job.drain(leaver)
    assert [type(command) for command in leaver.inbox] == [Drain]
    say_left(job, leaver)
    assert job.rendezvous.round == 1, "a broken collective is no end: it may have to report shards"
    say_left(job, leaver, ends=True)
    assert (job.rendezvous.phase, job.rendezvous.world) == ("training", ("0.0", "1.0"))
    assert leaver.running == 1
    job.advance(5.0)
    assert len(leaver.inbox) == 1, "it ends by itself"
    job.run_until_quiet()
    assert leaver.ended
    assert job.rendezvous.round == 2
    assert [agent.notified for agent in agents[:2]] == [[2], [2]]


def test_a_process_that_is_started_again_in_each_world_is_waited_for_until_it_has_ended() -> None:
    job, agents = world_of(2)
    job.drain(agents[1])
    say_left(job, agents[1], ends=True)
    assert job.rendezvous.phase == "reforming"


@pytest.mark.parametrize("code", [1, 137])
def test_a_failure_is_decided_as_soon_as_all_others_have_left_the_broken_world(code: int) -> None:
    job, agents = continuing(3)
    job.end_process(agents[1], code, asked=False)
    say_left(job, agents[0])
    assert not agents[1].inbox, "the third may be lost, too"
    say_left(job, agents[2])
    assert isinstance(agents[1].inbox[0], Exit)
    assert job.rendezvous.world == ("0.0", "2.0")


def test_a_world_that_all_have_left_does_not_wait_for_the_stream_of_a_killed_pod() -> None:
    job, agents = continuing(3)
    job.disconnect(agents[1])
    say_left(job, agents[0])
    job.advance(1.0)
    assert job.rendezvous.round == 1
    say_left(job, agents[2])
    assert (job.rendezvous.phase, job.rendezvous.world) == ("training", ("0.0", "2.0"))
    agents[1].connected = True
    job.connect(agents[1])  # only its stream was cut
    job.run_until_quiet()
    assert job.rendezvous.world == ("0.0", "2.0", "1.0")
    assert agents[1].starts == [1]


def test_a_late_report_of_a_failure_does_not_break_a_world_without_that_member() -> None:
    job, agents = continuing(3)
    job.disconnect(agents[1])
    say_left(job, agents[0])
    say_left(job, agents[2])
    agents[1].running = 0
    agents[1].unreported = (1, 137, False)
    job.connect(agents[1])
    job.advance(job.rendezvous.timing.proven_window + 0.1)
    assert not job.rendezvous.world_failed
    job.run_until_quiet()
    assert job.rendezvous.round == 2
    assert agents[1].ended


@given(
    size=st.integers(3, 6),
    lost=st.lists(st.tuples(st.sampled_from(["137", "1", "pod"]), st.floats(0, 0.25)), max_size=4),
    breaks=st.lists(st.floats(0, 0.4), min_size=6, max_size=6),
    restarts=st.booleans(),
)
def test_members_that_are_lost_together_cost_one_world(
    size: int, lost: list[tuple[str, float]], breaks: list[float], *, restarts: bool
) -> None:
    """Also if the others have noticed it before the last of them is reported."""
    lost = lost[: size - 1]
    job, agents = world_of(size) if restarts else continuing(size)
    events = [(at, agents[index], how) for index, (how, at) in enumerate(lost)]
    others = agents[len(lost) :]
    if lost and not restarts:
        events += [(at, agent, "left") for agent, at in zip(others, breaks, strict=False)]
    began = job.now
    for at, agent, how in sorted(events, key=lambda event: event[0]):
        job.advance(began + at - job.now)
        if how == "left":
            say_left(job, agent)
        elif how == "pod":
            job.kill(agent)
        else:
            job.end_process(agent, int(how), asked=False)
    job.run_until_quiet()
    assert job.rendezvous.round == (2 if lost else 1)
