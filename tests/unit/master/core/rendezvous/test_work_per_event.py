"""What an event costs the master does not depend on the members that it does not concern."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from elasticjob_master.core.rendezvous.advance import advance
from elasticjob_master.core.rendezvous.commands import Start
from elasticjob_master.core.rendezvous.desired_commands import MOST_COMMANDS
from elasticjob_master.core.rendezvous.events import Event
from elasticjob_master.core.rendezvous.member_events import (
    HeartbeatReceived,
    MemberConnected,
    MemberDisconnected,
    MemberRegistered,
    ProcessExited,
    ProcessStarted,
)
from elasticjob_master.core.rendezvous.members import Identity, Usage
from elasticjob_master.core.rendezvous.rules import RoleSize
from elasticjob_master.core.rendezvous.state import RendezvousState

from tests.support.work import steps

SIZES = (100, 1_000, 10_000)
NOW = 1000.0


def joined(members: int, *, desired: int) -> RendezvousState:
    """Return a job whose first members wait for the others."""
    state = RendezvousState(sizes={"worker": RoleSize(desired, desired)})
    for index in range(members):
        join(state, index)
    advance(state, NOW)
    return state


def join(state: RendezvousState, index: int) -> None:
    identity = Identity(f"j-worker-{index}-0", f"uid-{index}", "worker", index)
    advance(state, NOW, MemberRegistered(identity))
    advance(state, NOW, MemberConnected(identity.pod_uid))


def training(members: int, *, confirmed: int) -> RendezvousState:
    """Return a job whose world has begun, with this number of processes that have started."""
    state = joined(members, desired=members)
    begin(state)
    assert state.phase == "training"
    for index in range(confirmed):
        advance(state, NOW, ProcessStarted(f"uid-{index}", 1))
    advance(state, NOW)
    return state


def begin(state: RendezvousState) -> None:
    """Form the world and start all its members."""
    advance(state, NOW)
    while state.commands_left:
        advance(state, NOW)


def decide_after(state: RendezvousState, event: Event) -> None:
    advance(state, NOW, event)
    advance(state, NOW)


def join_while_others_are_awaited(members: int) -> int:
    state = joined(members, desired=members + 10)

    def one_more() -> None:
        join(state, members)
        advance(state, NOW)

    taken = steps(one_more)
    assert state.phase == "waiting"
    return taken


def confirm_a_start(members: int) -> int:
    state = training(members, confirmed=members - 2)
    taken = steps(lambda: decide_after(state, ProcessStarted(f"uid-{members - 1}", 1)))
    assert state.confirmed_at is None
    return taken


def lose_a_stream_and_return(members: int) -> int:
    state = training(members, confirmed=members)

    def flicker() -> None:
        decide_after(state, MemberDisconnected("uid-7"))
        decide_after(state, MemberConnected("uid-7", running_round=1))

    taken = steps(flicker)
    assert state.round == 1
    return taken


def report_usage(members: int) -> int:
    state = training(members, confirmed=members)
    assert state.confirmed_at is not None
    return steps(lambda: decide_after(state, HeartbeatReceived("uid-7", Usage(1.0))))


@pytest.mark.guarantee("very-large-jobs")
@pytest.mark.parametrize(
    "steps_of",
    [join_while_others_are_awaited, confirm_a_start, lose_a_stream_and_return, report_usage],
    ids=lambda steps_of: steps_of.__name__,
)
def test_an_event_takes_as_many_steps_with_ten_thousand_members_as_with_a_hundred(
    steps_of: Callable[[int], int],
) -> None:
    # Since Python 3.13 the first run of a function counts fewer steps than the later ones.
    _, few, more, most = map(steps_of, (SIZES[0], *SIZES))
    assert max(more, most) <= 1.5 * few


@pytest.mark.guarantee("very-large-jobs")
def test_a_large_world_is_started_in_parts_and_each_member_once() -> None:
    state = joined(0, desired=1_200)
    for index in range(1_200):
        join(state, index)
    parts = [advance(state, NOW)]
    while state.commands_left:
        parts.append(advance(state, NOW))
    assert max(map(len, parts)) == MOST_COMMANDS
    assert [c.uid for part in parts for c in part] == list(state.world)
    assert state.round == 1
    assert not advance(state, NOW)


@pytest.mark.guarantee("very-large-jobs")
def test_members_of_a_large_world_that_fails_while_it_is_started_are_not_started_in_it() -> None:
    state = joined(0, desired=1_200)
    for index in range(1_200):
        join(state, index)
    advance(state, NOW)
    advance(state, NOW, ProcessExited(state.world[0], 1, exit_code=1))
    advance(state, NOW, MemberDisconnected(state.world[1]))  # may be the cause
    ends = advance(state, NOW)
    while state.commands_left:
        ends += advance(state, NOW)
    assert state.phase == "reforming"
    assert not any(isinstance(command, Start) for command in ends)
    assert not any(m.process_round for m in state.members if m.uid in state.world[MOST_COMMANDS:])


@pytest.mark.guarantee("very-large-jobs")
def test_the_steps_of_forming_a_world_grow_no_faster_than_its_members() -> None:
    taken = []
    for members in (1_000, 4_000):
        state = joined(members - 1, desired=members)
        join(state, members - 1)
        taken.append(steps(lambda state=state: begin(state)))  # type: ignore[misc]
        assert state.round == 1
        assert all(m.last_command is not None for m in state.members)
    assert taken[1] <= 4.4 * taken[0]
