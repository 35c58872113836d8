"""Applies events to the state. Most change only facts about one member."""

from __future__ import annotations

from elasticjob_master.core.rendezvous import (
    desired_commands,
    events,
    node_check,
    notified_processes,
)
from elasticjob_master.core.rendezvous.commands import Command
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.state import RendezvousState

_MOST_UNSTORED_ROUNDS = 1
"""The number of worlds that a master can form before the first is stored, while storing works."""


def record_heartbeat(state: RendezvousState, event: events.HeartbeatReceived, now: float) -> None:
    """Record that a member is alive, and the resources that its process uses."""
    member = _heard(state, event.uid, now)
    if member is not None:
        member.usage = event.usage


def record_steps(state: RendezvousState, event: events.StepsReported, now: float) -> None:
    """Record how far a member's process is and how long its steps take."""
    member = _heard(state, event.uid, now)
    if member is not None:
        report = event.report
        steps = report.steps or max(0, report.step - member.step)
        member.step_times.add(report, steps, now)
        member.step = report.step


def record_restart(state: RendezvousState, event: events.ProcessRestarted, now: float) -> None:
    """Record how often a crashed process was started again in its pod; no decision reads it."""
    member = _heard(state, event.uid, now)
    if member is not None:
        member.restarts = event.restarts


def register(state: RendezvousState, event: events.MemberRegistered, now: float) -> list[Command]:
    """Make a pod a member, in place of an earlier pod with its role and index."""
    commands: list[Command] = []
    identity = event.identity
    predecessor = state.members.member_at(identity)
    if predecessor is not None and predecessor.uid != identity.pod_uid:
        commands = state.remove_member(predecessor)
    member = state.members.get(identity.pod_uid)
    if member is None:
        member = state.members.add(identity, now)
    member.identity = identity
    state.note(member.uid)
    if identity.pod_name in state.draining_pods:
        member.drain(state.draining_pods[identity.pod_name], now)
    return commands


def connect(state: RendezvousState, event: events.MemberConnected, now: float) -> list[Command]:
    """Adopt the process that a member reports on its new stream."""
    member = _sender(state, event.uid, now)
    if member is None:
        return []
    state.members.set_disconnected(member, None)
    state.members.awaited.discard(event.uid)
    replaced = notified_processes.was_replaced(state, member, event.running_round)
    member.last_command = None
    member.suspected = False
    commands = _adopt_running_process(state, member, event.running_round, now)
    if event.running_round:
        # If an earlier master formed that world and did not store it, another one is formed.
        state.round = max(state.round, event.joined_round)
        member.joined_round = max(member.joined_round, event.joined_round)
        if replaced:
            member.renewal = "at_once"
    if event.draining:
        member.drain(state.timing.stop, now)
    member.joined_at = None if state.in_world(event.uid) else now
    return commands


def _adopt_running_process(
    state: RendezvousState, member: Member, running_round: int, now: float
) -> list[Command]:
    """Bring the facts about a member in line with the process that its agent reports."""
    commands: list[Command] = []
    if running_round > state.round:
        # An earlier master formed this world and did not store it. Its members are unknown, so
        # another one is formed.
        state.round = running_round
        state.world_incomplete = True
    if running_round:
        if member.process_round not in (0, running_round):
            # The end of an earlier process was not stored before the master restarted.
            commands = state.end_process(member)
        member.process_round = running_round
        member.started = True
        member.exit_due = None
        member.last_round = max(member.last_round, running_round)
    elif member.process_round and member.started:
        member.exit_due = now + state.timing.exit_report
    elif member.process_round:
        member.process_round = 0  # the start command was lost with its stream
    member.stop_due = None
    return commands


def disconnect(
    state: RendezvousState, event: events.MemberDisconnected, now: float
) -> list[Command]:
    """Wait for a member's next stream, or remove it if it was asked to leave and has left."""
    member = state.members.get(event.uid)
    if member is None:
        return []
    if member.leaving and not member.succeeded and not member.process_round:
        return state.remove_member(member)
    state.members.set_disconnected(member, now)
    state.note(member.uid)
    return []


def confirm_start(state: RendezvousState, event: events.ProcessStarted, now: float) -> None:
    """Record that a member runs the process that it was asked to start."""
    member = _sender(state, event.uid, now)
    if member is not None and member.process_round == event.round:
        member.started = True
        member.crash_excused = False
        state.unfit.pop((member.identity.role, member.identity.index), None)


def record_exit(state: RendezvousState, event: events.ProcessExited, now: float) -> list[Command]:
    """Record that a member's process has ended: as it should, successfully, or by a crash."""
    member = _sender(state, event.uid, now)
    if member is None or event.round == 0 or member.process_round != event.round:
        return []
    # The processes may agree among themselves to stop, before this agent has got the command.
    stopping = desired_commands.must_stop(state, member)
    commands = state.end_process(member)
    if member.leaving or stopping:
        return commands
    if event.requested:
        state.world_incomplete = True
    elif event.exit_code == 0:
        _record_success(state, member, now)
    else:
        member.crashed_at = now
        member.node_problem = event.node_problem
        member.retry = event.retry
        member.failed_at = now - event.failed_seconds_ago
    return commands


def _record_success(state: RendezvousState, member: Member, now: float) -> None:
    """Record that a member has finished, and the job with it if its role decides about that."""
    member.succeeded = True
    if state.rules.deciding_role in (None, member.identity.role):
        state.phase = "finishing"
        if state.finished_at is None:
            state.finished_at = now


def request_place(state: RendezvousState, event: events.PlaceRequested) -> None:
    """Record that a process waits for its place in the next world.

    An earlier request that arrives late changes nothing.
    """
    member = state.members.get(event.uid)
    if member is not None and event.left_round >= member.joined_round:
        member.joined_round = event.left_round
        member.joining = True
        state.note(member.uid)


def take_place(state: RendezvousState, event: events.PlaceTaken, now: float) -> None:
    """Record that a process knows its place in the world of a round."""
    member = _sender(state, event.uid, now)
    if member is None or not member.process_round:
        return
    if member.joined_round < event.round <= state.round:
        member.joined_round = event.round
        member.joining = False
        member.take_world_due = None


def leave(state: RendezvousState, event: events.MemberLeaving, now: float) -> None:
    """Drain a member that has to leave."""
    member = _sender(state, event.uid, now)
    if member is not None:
        member.drain(state.timing.stop, now)


def record_node_check(state: RendezvousState, event: events.NodeChecked, now: float) -> None:
    """Record the result of a member's node check."""
    member = _sender(state, event.uid, now)
    if member is not None:
        node_check.record_answer(member, event)


def adopt_settings(state: RendezvousState, event: events.SettingsObserved) -> None:
    """Decide by these settings from now on."""
    state.sizes = event.sizes
    state.rules = event.rules
    state.timing = event.timing
    state.domains = event.domains
    state.node_check = event.node_check


def drain_pods(state: RendezvousState, event: events.DrainOrdered, now: float) -> None:
    """Drain the members of these pods, and pods that register later under these names."""
    state.draining_pods = event.seconds
    if event.seconds:
        for member in state.members:
            seconds = event.seconds.get(member.identity.pod_name)
            if seconds is not None:
                member.drain(seconds, now)
                state.note(member.uid)


def restart_training(state: RendezvousState) -> None:
    """Have all training processes killed and a new world formed."""
    if state.phase == "training":
        state.phase = "reforming"
    state.world_failed = True
    notified_processes.renew_all(state)


def extend_deadlines(state: RendezvousState, seconds: float) -> None:
    """Extend the deadlines of all members by the time in which the master received nothing."""
    for member in state.members:
        member.last_heard_at += seconds
        member.node_check.deadline += seconds
        if member.stop_due is not None:
            member.stop_due += seconds
        if member.exit_due is not None:
            member.exit_due += seconds
        if member.take_world_due is not None:
            member.take_world_due += seconds
        if member.disconnected_since is not None:
            member.disconnected_since += seconds


def restore(state: RendezvousState, event: events.StateRestored, now: float) -> None:
    """Continue from the state of an earlier master."""
    world = set(event.world)
    for member in event.members:
        state.members.restore(member, in_world=member.uid in world)
    state.restored = True
    state.phase = event.phase
    state.round = event.round
    if event.round:
        state.unstored_rounds = _MOST_UNSTORED_ROUNDS
    state.set_world(event.world)
    if event.world:
        state.formed_at = now
    if event.finished:
        state.finished_at = now
    state.world_failed = event.world_failed
    state.world_incomplete = event.world_incomplete
    state.successors = event.successors
    state.unfit = dict(event.unfit)
    state.broken_nodes = list(event.broken_nodes)
    state.reconnect_deadline = now + state.timing.lost


def _sender(state: RendezvousState, uid: str, now: float) -> Member | None:
    """Return the member whose agent has sent a message now that may change a decision."""
    state.note(uid)
    return _heard(state, uid, now)


def _heard(state: RendezvousState, uid: str, now: float) -> Member | None:
    """Return the member whose agent has sent a message now."""
    member = state.members.get(uid)
    if member is not None:
        member.last_heard_at = now
    return member
