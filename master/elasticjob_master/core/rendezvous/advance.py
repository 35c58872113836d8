"""The one entry of the rendezvous, which forms worlds, the sets of members that train together.

`advance` is the only function that changes a `RendezvousState`. An event only changes facts. A tick
compares the facts with the desired state, makes the transitions that they allow, and returns the
commands that are missing. So a repeated, late or lost message, a reconnection or a restart of the
master needs no handling of its own. The events of many members are applied one by one, and one tick
decides for all of them: it looks at the members that have changed, and `census` knows the others.

The phases and their transitions:

    waiting -> training: enough members are available, the join window has closed, and no process
        of the last world runs.
    training -> reforming: the world has failed or is incomplete, a member drains, or members that
        have joined are ready.
    reforming -> waiting: no connected member of the world runs a process that has to end.
    training -> finishing: a member has finished successfully (see `member_events.ProcessExited`).
        Members that leave from then on change no world.
    finishing -> waiting: no member of the world runs a process, and any role's success counts.
    finishing -> reforming: the world has failed, and its processes have not ended in time. Or the
        training has finished in the world before this one, whose new members wait for the others.

An in-process elastic framework remains in training when its members change. Its next world is
formed while the processes of the last one run. The processes of kept and notified roles continue,
too, while those of other roles are stopped. If the master acts as Horovod's elastic driver,
`elastic_driver` forms the worlds.
"""

from __future__ import annotations

from elasticjob_master.core.rendezvous import (
    desired_commands,
    elastic_driver,
    failure_detection,
    node_check,
    vanished_nodes,
    world_formation,
)
from elasticjob_master.core.rendezvous.commands import Command
from elasticjob_master.core.rendezvous.events import Event
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.state import RendezvousState


def advance(state: RendezvousState, now: float, event: Event | None = None) -> list[Command]:
    """Apply an event, or make every decision that the facts allow now if there is no event.

    Returns:
        The commands that follow, in the order in which they are to be executed.
    """
    if event is None:
        return _decide(state, now)
    return event.apply(state, now) or []


def _decide(state: RendezvousState, now: float) -> list[Command]:
    """Make every decision that the facts allow now, and return the commands that follow."""
    state.store_needed = False
    commands = failure_detection.handle_timeouts(state, now)
    commands += vanished_nodes.advance(state, now)
    node_check.advance(state, now)
    failure_detection.resolve_crashes(state, now)
    failure_detection.end_broken_world(state)
    before = None
    while before != (state.phase, state.round):  # at most: training, reforming, waiting, training
        before = (state.phase, state.round)
        _make_transition(state, now)
    return commands + desired_commands.missing_commands(state, now)


def _make_transition(state: RendezvousState, now: float) -> None:
    if state.rules.elastic_driver and state.finished_at is not None:
        elastic_driver.let_latecomers_go(state)
    if state.rules.elastic_driver and state.phase in ("training", "finishing"):
        elastic_driver.advance(state, now)
    elif state.phase == "training":
        _confirm_world(state, now)
        if state.rules.in_process_elastic:
            _change_running_world(state, now)
        elif state.world_failed or state.world_incomplete or _membership_change_due(state, now):
            state.phase = "reforming"
    elif state.phase == "finishing":
        _leave_finishing(state, now)
    if state.phase == "reforming" and not any(state.must_end_first()):
        state.phase = "waiting"
    if state.phase == "waiting" and _can_form_world(state, now):
        _form_world(state, now)


def _membership_change_due(state: RendezvousState, now: float) -> bool:
    """Return whether a member has to leave, or a complete world with joiners is possible."""
    census = state.census
    if not census.draining.isdisjoint(census.survivors):
        return True
    if state.confirmed_at is None or not census.joined or not state.joins_settled(now):
        return False
    # The first member of an added role may have joined. Until the role has enough members, the
    # present world continues to train.
    if not world_formation.has_enough_members(
        census.counts(), state.sizes or {}, all_desired=False
    ):
        return False
    # A world that cannot be stored cannot be started. So the present one continues to train until
    # a write succeeds that began after the members had joined.
    _, last_joined_at = census.join_times() or (0.0, 0.0)
    storable = not state.shared_state or state.stored_at >= last_joined_at
    state.store_needed = state.store_needed or not storable
    return storable


def _change_running_world(state: RendezvousState, now: float) -> None:
    """Form the next world of an in-process elastic framework while it trains."""
    if state.confirmed_at is None or now - (state.formed_at or 0.0) < state.timing.world_interval:
        return
    present = {
        m.uid for m in state.members if m.available or (m.uid in state.world_uids and not m.leaving)
    }
    if not present:
        return
    changed = present != state.world_uids and (
        present < state.world_uids or state.joins_settled(now)
    )
    if changed or any(_needs_process(state, m) for m in state.world_members()):
        _form_world(state, now)


def _needs_process(state: RendezvousState, member: Member) -> bool:
    """Return whether a member's process has ended early. Only a new world starts another one."""
    ended = (
        not member.process_round and member.last_round >= state.round and member.crashed_at is None
    )
    return ended and member.available


def _leave_finishing(state: RendezvousState, now: float) -> None:
    decides = state.rules.deciding_role is not None
    late = state.finished_at is not None and now - state.finished_at > state.timing.finishing
    if not any(state.running()):
        if not decides:
            state.phase = "waiting"
        return
    cannot_begin = state.world_incomplete and not decides
    if (late and state.world_failed) or (cannot_begin and (late or not _any_behind(state))):
        state.phase = "reforming"


def _any_behind(state: RendezvousState) -> bool:
    """Return whether processes of the world before run, which end, too: not one new world each."""
    return any(desired_commands.is_behind(state, member) for member in state.running())


def _can_form_world(state: RendezvousState, now: float) -> bool:
    if state.sizes is None or (
        state.finished_at is not None and state.rules.deciding_role is not None
    ):
        return False
    if state.awaits_reconnections(now) or failure_detection.awaits_end(state, now):
        return False
    census = state.census
    if not census.available or not census.crashed.isdisjoint(census.available):
        return False
    running = map(state.members.get, census.running & census.available)
    if any(m is not None and not state.keeps_process(m) for m in running):
        return False  # a process of an earlier world is still being stopped
    if state.finished_at is not None:
        # Members that joined late or have failed finish from the last checkpoint.
        return True
    all_desired = state.rules.all_ready and state.round == 0
    enough = world_formation.has_enough_members(
        census.counts(), state.sizes, all_desired=all_desired
    )
    return enough and state.joins_settled(now)


def _form_world(state: RendezvousState, now: float) -> None:
    """Begin the next round with the available members.

    The processes of an in-process elastic world continue, also those of disconnected members.
    """
    elastic = state.rules.in_process_elastic and not state.rules.elastic_driver
    members = [
        m
        for m in state.members
        if m.available or (elastic and m.uid in state.world_uids and not m.leaving)
    ]
    state.form_world(members, now)


def _confirm_world(state: RendezvousState, now: float) -> None:
    """Confirm the world when all its processes run, or when their start has taken too long."""
    if state.confirmed_at is not None or state.formed_at is None:
        return
    if not state.census.unconfirmed or now - state.formed_at > state.timing.start:
        state.confirmed_at = now
