"""The command that each member should have.

A command is sent once on a stream, and again when the agent has opened another stream.
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticjob_api import drain_times
from elasticjob_api.frameworks import stop_stage

from elasticjob_master.core.rendezvous import elastic_driver
from elasticjob_master.core.rendezvous.commands import (
    Check,
    Command,
    Drain,
    Exit,
    HostsUpdated,
    Start,
    Stop,
    Watch,
    WorldChanged,
)
from elasticjob_master.core.rendezvous.members import Member, MemberCommand
from elasticjob_master.core.rendezvous.state import RendezvousState

MOST_COMMANDS = 500
"""The most commands of one decision. To send thousands takes longer than others should wait."""


@dataclass(frozen=True)
class _Shared:
    """The facts that are computed once for the commands of all members.

    Attributes:
        kept_roles: the roles whose processes continue without notification.
        stop_stage: the first place in the stop order at which a process still has to end.
        announced: the present world is announced to the processes of the last one.
    """

    kept_roles: frozenset[str]
    stop_stage: int
    announced: bool


def missing_commands(state: RendezvousState, now: float) -> list[Command]:
    """Return the commands that connected members should have and that were not sent to them.

    Of many the first are returned, and `commands_left` is set.
    """
    commands: list[Command] = []
    shared = _shared_facts(state)
    may_start = state.may_start(now)
    still_due: dict[str, None] = {}
    due = _members_due(state, shared)
    for number, uid in enumerate(due):
        if len(commands) >= MOST_COMMANDS:
            still_due |= dict.fromkeys(due[number:])
            break
        member = state.members.get(uid)
        if member is None or member.disconnected_since is not None:
            continue
        watched = state.watched.get(uid, ())
        if member.watches and watched != (member.watched or ()):
            member.watched = watched
            commands.append(Watch(uid, watched))
        desired = _desired_command(state, member, shared, now)
        if member.draining_since is not None:
            still_due[uid] = None  # its command depends on the time
        if desired is None or desired is member.last_command or desired == member.last_command:
            continue
        if desired.command in ("start", "world_changed") and not may_start:
            _wait_for_store(state, now)
            still_due[uid] = None
        else:
            commands.append(_record_sent(state, member, desired, now))
    state.commands_due = still_due
    state.commands_left = len(commands) >= MOST_COMMANDS
    return commands


def _members_due(state: RendezvousState, shared: _Shared) -> list[str]:
    """Return the UIDs of the members whose command may differ from the last one they were sent.

    These are those that have changed, or all if a fact has changed that concerns the commands of
    all.
    """
    state.adopt_changes()
    facts = (state.phase, state.round, state.stop_without_grace, state.rules, state.sizes, shared)
    if facts == state.commanded_by:
        return list(state.commands_due)
    state.commanded_by = facts
    return [member.uid for member in state.members]


def _shared_facts(state: RendezvousState) -> _Shared:
    order = state.rules.stop_order
    kept = frozenset(role for role, size in (state.sizes or {}).items() if size.kept)
    stage = 0
    if (order or kept) and state.phase == "reforming":
        roles = (member.identity.role for member in state.must_end_first())
        stage = min((stop_stage(role, order, kept) for role in roles), default=0)
    announced = state.rules.elastic_driver and elastic_driver.announced(state)
    return _Shared(kept, stage, announced)


def _wait_for_store(state: RendezvousState, now: float) -> None:
    """Have the world stored. This time does not count as a slow start of its members."""
    state.store_needed = True
    if state.confirmed_at is None:
        state.formed_at = now


def _desired_command(
    state: RendezvousState, member: Member, shared: _Shared, now: float
) -> MemberCommand | None:
    """Return the command that a connected member should have, if any."""
    if _is_outdated(state, member):
        # Also if the member leaves: the present world has begun without this process.
        return MemberCommand("stop", member.process_round, at_once=True)
    if member.succeeded or member.exiting:
        return MemberCommand("exit")
    if member.draining_since is not None:
        draining_seconds = now - member.draining_since
        return _leaving_command(state, member, shared, draining_seconds)
    in_world = state.in_world(member.uid) and state.phase in ("training", "finishing")
    if member.process_round:
        return _running_command(state, member, shared, in_world=in_world)
    may_run = member.crashed_at is None and member.last_round < state.round
    if in_world and state.phase == "training" and may_run:
        return MemberCommand("start", state.round)
    if member.node_check.stage == "running":
        return MemberCommand("check", member.order)
    return None


def _leaving_command(
    state: RendezvousState, member: Member, shared: _Shared, draining_seconds: float
) -> MemberCommand | None:
    """Return the command of a member that was asked to leave."""
    if _waits_to_stop(state, member, shared):
        return None
    # An in-process elastic process learns from host discovery that it has to leave. It gets half of
    # the time to end by itself.
    has_time = draining_seconds < drain_times.own_end(member.drain_seconds)
    trains = member.joined_round or not state.rules.elastic_driver
    if state.rules.in_process_elastic and member.process_round and has_time and trains:
        return _announcement(state, member, shared)
    return MemberCommand("drain")


def _running_command(
    state: RendezvousState, member: Member, shared: _Shared, *, in_world: bool
) -> MemberCommand | None:
    """Return the command of a member whose process runs."""
    if state.rules.in_process_elastic and state.phase != "reforming":
        if state.rules.elastic_driver and _has_wrong_ranks(state, member):
            return MemberCommand("stop", member.process_round, at_once=True)
        return _announcement(state, member, shared) or member.last_command
    if state.continues(member) or _waits_to_stop(state, member, shared):
        if in_world and is_behind(state, member):
            return MemberCommand("world_changed", state.round)
        return member.last_command
    if not in_world or must_stop(state, member):
        return MemberCommand("stop", member.process_round, state.stop_without_grace)
    return member.last_command


def must_stop(state: RendezvousState, member: Member) -> bool:
    """Return whether a change of the world stops a member's process."""
    if state.continues(member):
        return False
    if state.rules.in_process_elastic:
        return state.phase == "reforming"  # all processes are restarted
    ending = state.phase in ("reforming", "waiting")
    return ending or bool(member.renewal) or not _belongs(state, member)


def _belongs(state: RendezvousState, member: Member) -> bool:
    """Return whether a member's process belongs to the present world.

    A process of an earlier round belongs to it if its pod is a member. Such a process was in a kept
    or notified role when the world was formed. If the user changes that setting, the process stays
    until the next change of the world.
    """
    if member.process_round == state.round:
        return True
    return member.process_round > 0 and state.in_world(member.uid)


def is_behind(state: RendezvousState, member: Member) -> bool:
    """Return whether a process in a notified role has not taken the present world."""
    return state.is_notified(member) and 0 < member.taken_round < state.round


def _has_wrong_ranks(state: RendezvousState, member: Member) -> bool:
    """Return whether the world for which a member's process was started has never begun."""
    fits = member.process_round == state.round and state.in_world(member.uid)
    return not member.joined_round and not fits


def _is_outdated(state: RendezvousState, member: Member) -> bool:
    """Return whether a member's process must be killed and must not save anything.

    The next world was formed without it while it was cut off, or it has lost its leases.
    """
    if not member.process_round:
        return False
    if member.renewal:
        return member.renewal == "at_once"
    if state.rules.in_process_elastic or state.continues(member):
        return False
    return member.process_round < state.round and not _belongs(state, member)


def _waits_to_stop(state: RendezvousState, member: Member, shared: _Shared) -> bool:
    """Return whether others, which may save the state that it holds, stop before it."""
    if state.phase != "reforming" or state.stop_without_grace or not member.process_round:
        return False
    place = stop_stage(member.identity.role, state.rules.stop_order, shared.kept_roles)
    return place > shared.stop_stage


def _announcement(state: RendezvousState, member: Member, shared: _Shared) -> MemberCommand | None:
    """Return the command that announces the present world to a process of an earlier one."""
    if shared.announced and 0 < member.joined_round < state.round:
        return MemberCommand("hosts_updated", state.round)
    return None


def _record_sent(
    state: RendezvousState, member: Member, desired: MemberCommand, now: float
) -> Command:
    """Record a command and its deadlines in the member, and return the command to send."""
    timing = state.timing
    member.last_command = desired
    state.note(member.uid)
    match desired.command:
        case "start":
            member.process_round = desired.round
            member.started = False
            continues = state.continues(member)
            return Start(member.uid, desired.round, member.crash_excused, continues)
        case "stop":
            grace = 0.0 if desired.at_once else timing.stop
            member.stop_due = now + drain_times.lost(grace, timing.stop_margin)
            reason = ""
            if member.renewal == "asked":
                late = f"it has not taken a new world within {timing.stop:g} s"
                reason = f"{late}, so it is started again"
            return Stop(member.uid, desired.round, grace, reason)
        case "drain":
            member.stop_due = None
            if member.process_round:
                due = drain_times.lost(member.drain_seconds, timing.stop_margin)
                member.stop_due = now + due
            return Drain(member.uid, drain_times.agent_seconds(member.drain_seconds))
        case "check":
            settings = state.node_check
            command = tuple(settings.command)
            seconds = float(settings.timeout_seconds)
            return Check(member.uid, desired.round, member.node_check.peers, command, seconds)
        case "hosts_updated":
            return HostsUpdated(member.uid, desired.round)
        case "world_changed":
            return WorldChanged(member.uid, desired.round)
        case "exit":
            failed = member.node_check.stage == "failed"
            return Exit(member.uid, problem=member.node_check.problem if failed else "")
