"""The rendezvous: forms worlds, the sets of members that train together, one after the other.

It is a level-triggered state machine. Events only change facts; `advance` compares the facts with
the desired state, makes the transitions they allow, and returns the commands that are missing. So a
repeated, late or lost message, a reconnection or a restart of the master needs no handling of its
own.

Phases: "waiting" (there is no world), "training", "reforming" (the world is being stopped), and
"finishing" (a member has finished successfully; members that leave from then on change no world).
`world_changes` has the transitions. A world is formed only when no process of the last one runs;
only in-process elastic frameworks get the next world while their processes run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from elasticjob_api.frameworks import stop_stage

from elasticjob_master.core.rendezvous import (
    current_process,
    desired_commands,
    elastic_driver,
    failure_detection,
    node_check,
    notified_processes,
    world_changes,
)
from elasticjob_master.core.rendezvous.commands import Command, MemberRemoved, ReleaseLeases
from elasticjob_master.core.rendezvous.members import Identity, Member, Members
from elasticjob_master.core.rendezvous.rules import Phase, Rules, Timing
from elasticjob_master.core.rendezvous.state import RendezvousState

_TIMEOUT_CHECK_SECONDS = 0.5
"""Time between two checks of all members for expired deadlines."""
_MOST_UNSTORED_ROUNDS = 1
"""How many worlds a master can form before the first of them is stored, as long as storing works.
"""


class Rendezvous(RendezvousState):
    """The state machine. `now` is the time of any monotonic clock."""

    def __init__(
        self, members: Members, *, rules: Rules | None = None, timing: Timing | None = None
    ) -> None:
        super().__init__(members, rules=rules or Rules(), timing=timing or Timing())
        self._timeouts_checked_at: float | None = None
        self._draining_pods: Mapping[str, float] = {}
        self._commands: list[Command] = []

    # --- events
    # ------------------------------------------------------------------------------------------------------

    def register(self, identity: Identity, now: float) -> Member:
        """Register an agent. Raises `NotCurrent` when its role and index belong to another pod."""
        self.members.check_registration(identity)
        predecessor = self.members.member_at(identity)
        if predecessor is not None and predecessor.uid != identity.pod_uid:
            self._remove(predecessor)
        member = self.members.get(identity.pod_uid)
        if member is None:
            member = self.members.add(identity, now)
        member.identity = identity
        if identity.pod_name in self._draining_pods:
            member.drain(self._draining_pods[identity.pod_name], now)
        return member

    def connected(
        self,
        uid: str,
        now: float,
        *,
        running_round: int = 0,
        draining: bool = False,
        joined_round: int = 0,
    ) -> None:
        """Handle that a registered agent has opened a stream, with what it reports about its process.

        Args:
            uid: the pod's UID.
            now: the present time.
            running_round: the round of the process that runs there; 0: none runs.
            joined_round: of the latest world in which that process has got its place, with an elastic driver.
            draining: the agent has been asked to end, as by SIGTERM.
        """
        member = self.members.get(uid)
        if member is None:
            return
        self.members.set_disconnected(member, None)
        self.members.awaited.discard(uid)
        replaced = notified_processes.was_replaced(self, member, running_round)
        member.last_command = None
        member.last_heard_at = now
        member.suspected = False
        self._adopt_reported_process(member, running_round, now)
        if running_round:
            # A world that an earlier master has formed and not stored is unknown here: another one
            # is formed.
            self.round = max(self.round, joined_round)
            member.joined_round = max(member.joined_round, joined_round)
            if replaced:
                member.renewal = "at_once"
        if draining:
            member.drain(self.timing.stop, now)
        member.joined_at = None if uid in self.world_uids else now

    def disconnected(self, uid: str, now: float) -> None:
        """Handle that the stream of an agent has ended."""
        member = self.members.get(uid)
        if member is None:
            return
        if member.leaving and not member.succeeded and not member.process_round:
            self._remove(member)  # it has left, as it was asked to
        else:
            self.members.set_disconnected(member, now)

    def joins(self, uid: str, process_round: int, left_round: int) -> None:
        """Handle that a process asks for its place in the next world, where the master plays Horovod's elastic driver.

        Args:
            uid: the member's pod UID.
            process_round: in which the process was started.
            left_round: of the world that it has left; 0: it was in none.

        Raises:
            NotReadyYet: it is not known yet what runs there.
            NotCurrent: the process has ended.
        """
        member = current_process.check_process(self, uid, process_round)
        if left_round >= member.joined_round:  # else an earlier request has come late
            member.joined_round = left_round
            member.joining = True

    def has_place(self, uid: str, process_round: int, left_round: int) -> bool:
        """Return whether a process that has asked has a place in the present world, with the errors of `joins`."""
        return elastic_driver.may_join(
            self, current_process.check_process(self, uid, process_round), left_round
        )

    def joined(self, uid: str, round_: int) -> None:
        """Handle that a process has got its place in the world of a round.

        A repeated report changes nothing.
        """
        member = self.members.get(uid)
        if (
            member is not None
            and member.process_round
            and member.joined_round < round_ <= self.round
        ):
            member.joined_round = round_
            member.joining = False
            member.take_due = None

    def process_started(self, uid: str, process_round: int) -> None:
        """Handle that an agent has started its training process."""
        member = self.members.get(uid)
        if member is not None and member.process_round == process_round:
            member.started = True
            member.crash_excused = False

    def process_exited(
        self,
        uid: str,
        process_round: int,
        exit_code: int,
        now: float,
        *,
        requested: bool,
        retry: bool = False,
        failed_seconds_ago: float = 0.0,
    ) -> None:
        """Handle that a training process has ended; a repeated report changes nothing.

        Args:
            uid: the member's pod UID.
            process_round: of the process.
            exit_code: of the process.
            now: the present time.
            requested: it was stopped.
            retry: it has crashed, and its agent may start it again in the next world.
            failed_seconds_ago: when the first of the member's processes failed.
        """
        member = self.members.get(uid)
        if member is None or process_round == 0 or member.process_round != process_round:
            return
        stopping = self._world_state(now).must_stop(member)
        self._end_process(member)
        if member.leaving:
            return
        if stopping:
            # the processes agree among themselves to stop, maybe before this agent has got the
            # command
            return
        if requested:
            self.world_incomplete = True
        elif exit_code == 0:
            member.succeeded = True
            self.member_finished = True
            if self.rules.deciding_role in (None, member.identity.role):
                self.phase = "finishing"
                self.finished_at = now if self.finished_at is None else self.finished_at
        else:
            member.crashed_at = now
            member.retry = retry
            member.failed_at = now - failed_seconds_ago

    def set_draining(self, pods: Mapping[str, float], now: float) -> None:
        """Drain these pods, and pods that register later under these names.

        Maps names to drain seconds.
        The call replaces the last set, but a member that drains already goes on doing so.
        """
        self._draining_pods = dict(pods)
        for member in self.members if pods else ():
            seconds = pods.get(member.identity.pod_name)
            if seconds is not None:
                member.drain(seconds, now)

    def set_standby(self, places: frozenset[tuple[str, int]]) -> bool:
        """Set the roles and indices of members that wait for the end of those they replace.

        Return whether they differ. They alone are no reason for a new world, so a migration costs
        one world change and not two. A world that is formed for another reason includes them.
        """
        before = self.standby
        self.standby = places
        return before != places

    def member_leaving(self, uid: str, now: float) -> None:
        """Handle that an agent reports that it has to leave, as after SIGTERM."""
        member = self.members.get(uid)
        if member is not None:
            member.drain(self.timing.stop, now)

    def restart_training(self) -> None:
        """Stop all training processes without grace period and form a new world, as when they hang."""
        if self.phase == "training":
            self.phase = "reforming"
        self.world_failed = self.member_lost = True
        notified_processes.renew_all(self)

    def extend_deadlines(self, seconds: float) -> None:
        """Extend all members' deadlines by a time in which the master itself was suspended and received nothing."""
        for member in self.members:
            member.last_heard_at += seconds
            member.node_check.deadline += seconds
            if member.stop_due is not None:
                member.stop_due += seconds
            if member.exit_due is not None:
                member.exit_due += seconds
            if member.take_due is not None:
                member.take_due += seconds
            if member.disconnected_since is not None:
                member.disconnected_since += seconds

    # --- decisions
    # ---------------------------------------------------------------------------------------------------

    def advance(self, now: float) -> list[Command]:
        """Make every decision that the facts allow now, and return the commands that follow."""
        if (
            self._timeouts_checked_at is None
            or now - self._timeouts_checked_at >= _TIMEOUT_CHECK_SECONDS
        ):
            self._timeouts_checked_at = now
            self._check_timeouts(now)
        self.store_needed = False
        node_check.advance(self, now)
        self._resolve_crashes(now)
        before = None
        while before != (
            self.phase,
            self.round,
        ):  # at most: training -> reforming -> waiting -> training
            before = (self.phase, self.round)
            world_changes.apply_transitions(self, now)
        world = self._world_state(now)
        may_start = self.may_start(now)
        for member in self.members:
            if member.disconnected_since is None:
                desired = desired_commands.desired_command(member, world)
                if (
                    desired is None
                    or desired is member.last_command
                    or desired == member.last_command
                ):
                    continue
                if desired.command in ("start", "world_changed") and not may_start:
                    self._wait_for_store(now)
                    continue
                goes_on = self.goes_on(member)
                check = self.node_check
                command = desired_commands.send(
                    member, desired, goes_on=goes_on, now=now, timing=self.timing, check=check
                )
                self._commands.append(command)
        commands = self._commands
        self._commands = []
        return commands

    def stored(self, process_round: int, began_at: float) -> None:
        """Handle that the state was stored, with the world of this round, by a write that began at this time."""
        self.stored_round = process_round
        self.stored_at = began_at

    def _wait_for_store(self, now: float) -> None:
        """Have the state stored; the time that this takes is nobody's who has to start."""
        self.store_needed = True
        if self.confirmed_at is None:
            self.formed_at = now

    def restore(
        self,
        *,
        phase: str,
        process_round: int,
        world: tuple[str, ...],
        finished: bool,
        now: float,
        world_failed: bool = False,
        world_incomplete: bool = False,
        standby: frozenset[tuple[str, int]] = frozenset(),
        unfit: Mapping[tuple[str, int], tuple[str, str]] | None = None,
    ) -> None:
        """Continue from the state of an earlier master; members get the usual time to reconnect."""
        self.phase = next((known for known in get_args(Phase) if known == phase), "waiting")
        self.round, self.standby, self.unfit = process_round, standby, dict(unfit or {})
        self.restored = True
        self.world_failed = self.member_lost = world_failed
        self.world_incomplete = world_incomplete
        self.member_finished = phase == "finishing"
        self.unstored_rounds = _MOST_UNSTORED_ROUNDS if process_round else 0
        self.set_world(world)
        self.formed_at = now if world else None
        self.finished_at = now if finished else None
        self.reconnect_deadline = now + self.timing.lost

    def _world_state(self, now: float) -> desired_commands.WorldState:
        order = self.rules.stop_order
        kept = frozenset(r for r, size in (self.sizes or {}).items() if size.kept)
        notified = frozenset(role for role, size in (self.sizes or {}).items() if size.notified)
        running = self.running() if (order or kept) and self.phase == "reforming" else ()
        stages = (stop_stage(member.identity.role, order, kept) for member in running)
        return desired_commands.WorldState(
            now=now,
            round=self.round,
            phase=self.phase,
            world_uids=self.world_uids,
            in_process_elastic=self.rules.in_process_elastic,
            stop_without_grace=self.stop_without_grace,
            kept_roles=kept,
            notified_roles=notified,
            stop_order=order,
            stop_stage=min(stages, default=0),
            elastic_driver=self.rules.elastic_driver,
            announced=self.rules.elastic_driver and elastic_driver.announced(self),
        )

    def _check_timeouts(self, now: float) -> None:
        """Remove lost members, mark suspected ones, and stop waiting for overdue exit reports."""
        for member in list(self.members):
            member.suspected = failure_detection.is_suspected(member, self.timing, now)
            if failure_detection.is_lost(member, self.timing, now):
                self._remove(member)
            elif member.exit_due is not None and now > member.exit_due:
                self._end_process(member)
                self.world_incomplete = True
            elif self.is_notified(member):
                notified_processes.check_world_taken(self, member, now)

    def _resolve_crashes(self, now: float) -> None:
        """Decide which members of failed processes have to exit, once that is known."""
        crashed = [m for m in self.members if m.crashed_at is not None]
        if not crashed:
            return
        disconnected = any(m.disconnected_since is not None for m in self.world_members())
        stopping = self.phase in ("reforming", "waiting")
        at_fault = failure_detection.members_at_fault(
            crashed,
            single_member=len(self.world) <= 1,
            other_cause=self.member_lost or self.member_finished or disconnected or stopping,
            in_process_elastic=self.rules.in_process_elastic,
            timing=self.timing,
            now=now,
        )
        if at_fault is None:
            return
        for member in crashed:
            member.crashed_at = None
            member.exiting = member in at_fault and not member.retry
            member.crash_excused = member not in at_fault
        self.world_failed = True

    # --- facts
    # -------------------------------------------------------------------------------------------------------

    def _adopt_reported_process(self, member: Member, running_round: int, now: float) -> None:
        """Bring the member's facts in line with the process that its agent reports."""
        if running_round > self.round:
            # An earlier master formed this world and did not store it, so its members are unknown:
            # form another one.
            self.round = running_round
            self.world_incomplete = True
        if running_round:
            if member.process_round not in (0, running_round):
                self._end_process(
                    member
                )  # an earlier process, whose end was not stored before a restart of the master
            member.process_round = running_round
            member.started = True
            member.exit_due = None
            member.last_round = max(member.last_round, running_round)
        elif member.process_round and member.started:
            member.exit_due = now + self.timing.exit_report
        elif member.process_round:
            member.process_round = 0  # the start command was lost with its stream
        member.stop_due = None

    def _end_process(self, member: Member) -> None:
        member.process_ended()
        self.members.awaited.discard(member.uid)
        self._commands.append(ReleaseLeases(member.uid))

    def _remove(self, member: Member) -> None:
        # A member whose process has not started yet counts too: the others wait for it.
        was_needed = (
            bool(member.process_round)
            or member.crashed_at is not None
            or member.last_round < self.round
        )
        if member.uid in self.world_uids and was_needed and not self.rules.in_process_elastic:
            self.world_failed = self.member_lost = True
        self.members.remove(member)
        self._commands += [ReleaseLeases(member.uid), MemberRemoved(member.uid)]
