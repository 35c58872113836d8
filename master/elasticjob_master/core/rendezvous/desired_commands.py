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
    """What the command of every member depends on, read once for all members.

    Attributes:
        round: of the present world.
        world_uids: the UIDs of its members.
        announced: with an elastic driver: the processes of the last world shall come into the present one.
        stop_without_grace: the world has failed, so its processes have nothing to save.
        kept_roles: the roles whose processes go on.
        notified_roles: the roles whose processes go on and are told each new world.
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
        """Return whether a member's process has to be stopped because of a change of the world."""
        if self.goes_on(member):
            return False
        if self.in_process_elastic:
            return self.phase == "reforming"  # only when all processes are restarted
        return (
            bool(member.renewal)
            or not self.belongs(member)
            or self.phase in ("reforming", "waiting")
        )

    def belongs(self, member: Member) -> bool:
        """Return whether a member's process belongs to the present world.

        One of an earlier round does in a member of this world: a world takes none with such a
        process, unless its role goes on. If it is a role to go on no longer, that holds from the
        next change on, when who saves stops before it.
        """
        return member.process_round == self.round or (
            member.process_round > 0 and member.uid in self.world_uids
        )

    def goes_on(self, member: Member) -> bool:
        """Return whether a member's process belongs to later worlds than that of its start."""
        role = member.identity.role
        return role in self.kept_roles or (role in self.notified_roles and not member.renewal)

    def must_be_told(self, member: Member) -> bool:
        """Return whether a member's process goes on in the present world, and has not taken it yet."""
        return member.identity.role in self.notified_roles and 0 < member.taken_round < self.round

    def is_misfit(self, member: Member) -> bool:
        """Return whether a process was started for a world that has not come about.

        Its rank and size are wrong.
        """
        fits = member.process_round == self.round and member.uid in self.world_uids
        return bool(member.process_round) and not member.joined_round and not fits

    def is_over(self, member: Member) -> bool:
        """Return whether another world was formed while a member's process still ran, as it was cut off then.

        Or whether it has to be killed for another reason: what it would save must not count.
        """
        if member.renewal:
            return member.renewal == "at_once" and bool(member.process_round)
        goes_on = self.in_process_elastic or self.goes_on(member)
        return not goes_on and 0 < member.process_round < self.round and not self.belongs(member)

    def waits_to_stop(self, member: Member) -> bool:
        """Return whether others, who may save what this member holds, have to stop before it."""
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
    """Return the commands that connected members should have and have not got on their streams."""
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
    """Have the world stored; this time does not count as a slow start of its members."""
    state.store_needed = True
    if state.confirmed_at is None:
        state.formed_at = now


def desired_command(member: Member, world: WorldState) -> LastCommand | None:
    """Return the command that a connected member should have; None: no command."""
    if world.is_over(member):
        # Whatever becomes of the member: the present world has begun without this process, which
        # must save nothing.
        return LastCommand("stop", member.process_round, at_once=True)
    if member.succeeded or member.exiting:
        return LastCommand("exit")
    if member.draining_since is not None:
        if world.waits_to_stop(member):
            return None
        # An in-process elastic process learns from host discovery that it has to leave, and gets
        # time to do so.
        may_leave_itself = (
            world.in_process_elastic
            and world.now - member.draining_since < member.drain_seconds / 2
        )
        if world.elastic_driver and not member.joined_round:
            may_leave_itself = False  # it takes no part in the training yet
        return (
            _announcement(member, world)
            if may_leave_itself and member.process_round
            else LastCommand("drain")
        )
    in_world = member.uid in world.world_uids and world.phase in ("training", "finishing")
    if member.process_round:
        if world.in_process_elastic and world.phase != "reforming":
            if world.elastic_driver and world.is_misfit(member):
                return LastCommand("stop", member.process_round, at_once=True)
            return _announcement(member, world) or member.last_command
        if world.goes_on(member) or world.waits_to_stop(member):
            tell = in_world and world.must_be_told(member)
            return LastCommand("world_changed", world.round) if tell else member.last_command
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
    """Return the command that announces the present world to a process of an earlier one, if it is due."""
    if world.elastic_driver and world.announced and 0 < member.joined_round < world.round:
        return LastCommand("hosts_updated", world.round)
    return None


def _record_sent(
    state: RendezvousState, member: Member, desired: LastCommand, now: float
) -> Command:
    """Record a command as the member's last one, with the deadlines that follow from it, and return it."""
    timing = state.timing
    member.last_command = desired
    match desired.command:
        case "start":
            member.process_round = desired.round
            member.started = False
            continues = state.goes_on(member)
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
