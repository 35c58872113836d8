"""The command that each member should have.

A command is sent once on a stream, and again when the agent has opened another stream.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    WorldChanged,
)
from elasticjob_master.core.rendezvous.members import LastCommand, Member
from elasticjob_master.core.rendezvous.rules import Phase
from elasticjob_master.core.rendezvous.state import RendezvousState


@dataclass(frozen=True)
class WorldState:
    """The facts about the world that every member's command depends on, computed once for all.

    Attributes:
        round: of the present world.
        world_uids: the UIDs of its members.
        announced: the present world is announced to the processes of the last one (elastic driver).
        stop_without_grace: the world has failed, so its processes cannot save anything.
        kept_roles: the roles whose processes continue without notification.
        notified_roles: the roles whose processes continue and are notified of each new world.
        stop_order: the roles that are stopped one after the other.
        stop_stage: the first place in this order at which a process still has to end.
    """

    now: float
    round: int
    phase: Phase
    world_uids: frozenset[str]
    in_process_elastic: bool
    stop_without_grace: bool
    kept_roles: frozenset[str] = frozenset()
    notified_roles: frozenset[str] = frozenset()
    stop_order: tuple[str, ...] = ()
    stop_stage: int = 0
    elastic_driver: bool = False
    announced: bool = False

    def must_stop(self, member: Member) -> bool:
        """Return whether a change of the world stops a member's process."""
        if self.continues(member):
            return False
        if self.in_process_elastic:
            return self.phase == "reforming"  # all processes are restarted
        return (
            bool(member.renewal)
            or not self.belongs(member)
            or self.phase in ("reforming", "waiting")
        )

    def belongs(self, member: Member) -> bool:
        """Return whether a member's process belongs to the present world.

        A process of an earlier round belongs to it if its pod is a member. Such a process was in a
        kept or notified role when the world was formed. If the user changes that setting, the
        process stays until the next change of the world.
        """
        return member.process_round == self.round or (
            member.process_round > 0 and member.uid in self.world_uids
        )

    def continues(self, member: Member) -> bool:
        """Return whether a member's process continues from world to world."""
        role = member.identity.role
        return role in self.kept_roles or (role in self.notified_roles and not member.renewal)

    def needs_notification(self, member: Member) -> bool:
        """Return whether a member's process continues in the present world and has not taken it."""
        return member.identity.role in self.notified_roles and 0 < member.taken_round < self.round

    def is_misfit(self, member: Member) -> bool:
        """Return whether a process has wrong ranks: the world of its start has never begun."""
        fits = member.process_round == self.round and member.uid in self.world_uids
        return bool(member.process_round) and not member.joined_round and not fits

    def is_outdated(self, member: Member) -> bool:
        """Return whether a member's process must be killed and must not save anything.

        The next world was formed without it while it was cut off, or it has lost its leases.
        """
        if member.renewal:
            return member.renewal == "at_once" and bool(member.process_round)
        continues = self.in_process_elastic or self.continues(member)
        return not continues and 0 < member.process_round < self.round and not self.belongs(member)

    def waits_to_stop(self, member: Member) -> bool:
        """Return whether others, which may save the state that it holds, stop before it."""
        in_order = (
            self.phase == "reforming" and not self.stop_without_grace and bool(member.process_round)
        )
        return (
            in_order
            and stop_stage(member.identity.role, self.stop_order, self.kept_roles) > self.stop_stage
        )


def world_state(state: RendezvousState, now: float) -> WorldState:
    """Return what the command of every member depends on."""
    sizes = state.sizes or {}
    order = state.rules.stop_order
    kept = frozenset(role for role, size in sizes.items() if size.kept)
    notified = frozenset(role for role, size in sizes.items() if size.notified)
    stage = 0
    if (order or kept) and state.phase == "reforming":
        roles = (member.identity.role for member in state.running())
        stage = min((stop_stage(role, order, kept) for role in roles), default=0)
    return WorldState(
        now=now,
        round=state.round,
        phase=state.phase,
        world_uids=state.world_uids,
        in_process_elastic=state.rules.in_process_elastic,
        stop_without_grace=state.stop_without_grace,
        kept_roles=kept,
        notified_roles=notified,
        stop_order=order,
        stop_stage=stage,
        elastic_driver=state.rules.elastic_driver,
        announced=state.rules.elastic_driver and elastic_driver.announced(state),
    )


def missing_commands(state: RendezvousState, now: float) -> list[Command]:
    """Return the commands that connected members should have and that were not sent to them."""
    commands = []
    world = world_state(state, now)
    may_start = state.may_start(now)
    for member in state.members:
        if member.disconnected_since is not None:
            continue
        desired = desired_command(member, world)
        if desired is None or desired is member.last_command or desired == member.last_command:
            continue
        if desired.command in ("start", "world_changed") and not may_start:
            _wait_for_store(state, now)
        else:
            commands.append(_record_sent(state, member, desired, now))
    return commands


def _wait_for_store(state: RendezvousState, now: float) -> None:
    """Have the world stored. This time does not count as a slow start of its members."""
    state.store_needed = True
    if state.confirmed_at is None:
        state.formed_at = now


def desired_command(member: Member, world: WorldState) -> LastCommand | None:
    """Return the command that a connected member should have; None: no command."""
    if world.is_outdated(member):
        # Also if the member leaves: the present world has begun without this process.
        return LastCommand("stop", member.process_round, at_once=True)
    if member.succeeded or member.exiting:
        return LastCommand("exit")
    if member.draining_since is not None:
        if world.waits_to_stop(member):
            return None
        # An in-process elastic process learns from host discovery that it has to leave. It gets
        # half of the time to end by itself.
        may_leave_itself = (
            world.in_process_elastic
            and world.now - member.draining_since < member.drain_seconds / 2
        )
        if world.elastic_driver and not member.joined_round:
            may_leave_itself = False  # it does not train yet
        if may_leave_itself and member.process_round:
            return _announcement(member, world)
        return LastCommand("drain")
    in_world = member.uid in world.world_uids and world.phase in ("training", "finishing")
    if member.process_round:
        if world.in_process_elastic and world.phase != "reforming":
            if world.elastic_driver and world.is_misfit(member):
                return LastCommand("stop", member.process_round, at_once=True)
            return _announcement(member, world) or member.last_command
        if world.continues(member) or world.waits_to_stop(member):
            if in_world and world.needs_notification(member):
                return LastCommand("world_changed", world.round)
            return member.last_command
        if not in_world or world.must_stop(member):
            return LastCommand("stop", member.process_round, world.stop_without_grace)
        return member.last_command
    if (
        in_world
        and world.phase == "training"
        and member.crashed_at is None
        and member.last_round < world.round
    ):
        return LastCommand("start", world.round)
    return LastCommand("check", member.order) if member.node_check.stage == "running" else None


def _announcement(member: Member, world: WorldState) -> LastCommand | None:
    """Return the command that announces the present world to a process of an earlier one."""
    if world.elastic_driver and world.announced and 0 < member.joined_round < world.round:
        return LastCommand("hosts_updated", world.round)
    return None


def _record_sent(
    state: RendezvousState, member: Member, desired: LastCommand, now: float
) -> Command:
    """Record a command and its deadlines in the member, and return the command to send."""
    timing = state.timing
    member.last_command = desired
    match desired.command:
        case "start":
            member.process_round = desired.round
            member.started = False
            continues = state.continues(member)
            return Start(member.uid, desired.round, member.crash_excused, continues)
        case "stop":
            grace = 0.0 if desired.at_once else timing.stop
            member.stop_due = now + 2 * grace + timing.stop_margin
            reason = ""
            if member.renewal == "asked":
                late = f"it has not taken a new world within {timing.stop:g} s"
                reason = f"{late}, so it is started again"
            return Stop(member.uid, desired.round, grace, reason)
        case "drain":
            member.stop_due = None
            if member.process_round:
                member.stop_due = now + 2 * member.drain_seconds + timing.stop_margin
            # A little less than the operator waits, so that the agent ends the process and not the
            # kubelet.
            return Drain(member.uid, 0.9 * member.drain_seconds)
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
