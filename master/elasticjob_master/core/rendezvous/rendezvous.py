"""Which members train together: worlds, one after the other.

Events change facts about members; `advance` then compares the facts with what ought to be and returns the commands
that are missing. So a repeated, late or lost message, a reconnection or a restart of the master needs no case of its
own. A world is formed once, from members in which no process runs, and ends before the next one is formed; only
frameworks that take changes in their running process get a new world beside the running one.

Phases: waiting (no world) -> training -> reforming (the world is being stopped) -> waiting -> ...; the first member
that finishes makes it finishing: whoever leaves from then on changes no world.
"""

from __future__ import annotations

from collections.abc import Mapping

from elasticjob_master.core.rendezvous import desired_commands, failure_detection, node_check, world_changes
from elasticjob_master.core.rendezvous.commands import Command, MemberRemoved, ReleaseLeases
from elasticjob_master.core.rendezvous.members import Identity, Member, Members
from elasticjob_master.core.rendezvous.rules import Phase, Rules, Timing
from elasticjob_master.core.rendezvous.state import RendezvousState

_LOOK_SECONDS = 0.5
"""Between two looks for members whose time is over."""
_ROUNDS_IN_A_WRITE = 1
"""So many worlds can be formed until the first of them is stored, where storing works."""


class Rendezvous(RendezvousState):
    """The state machine. `now` is any clock that does not go back."""

    def __init__(self, members: Members, *, rules: Rules | None = None, timing: Timing | None = None) -> None:
        super().__init__(members, rules=rules or Rules(), timing=timing or Timing())
        self._looked_at: float | None = None
        self._draining: Mapping[str, float] = {}
        self._out: list[Command] = []

    # --- events ------------------------------------------------------------------------------------------------------

    def register(self, identity: Identity, now: float) -> Member:
        """An agent registers. Raises `NotCurrent` when its place belongs to somebody else."""
        self.members.check_registration(identity)
        holder = self.members.member_at(identity)
        if holder is not None and holder.uid != identity.pod_uid:
            self._lose(holder)
        member = self.members.get(identity.pod_uid)
        if member is None:
            member = self.members.add(identity, now)
        member.identity = identity
        if identity.pod_name in self._draining:
            member.drain(self._draining[identity.pod_name], now)
        return member

    def connected(self, uid: str, now: float, *, running_round: int = 0, draining: bool = False) -> None:
        """A registered agent opens a stream and tells what runs there."""
        member = self.members.get(uid)
        if member is None:
            return
        self.members.set_disconnected(member, None)
        member.last_command, member.last_heard_at, member.suspected = None, now, False
        self._reconcile(member, running_round, now)
        if draining:
            member.drain(self.timing.stop, now)
        member.joined_at = None if uid in self.world_uids else now

    def disconnected(self, uid: str, now: float) -> None:
        """The stream of an agent has ended."""
        member = self.members.get(uid)
        if member is None:
            return
        if member.leaving and not member.succeeded and not member.process_round:
            self._lose(member)  # it has left, as it was asked to
        else:
            self.members.set_disconnected(member, now)

    def process_started(self, uid: str, process_round: int) -> None:
        """An agent has started its training process."""
        member = self.members.get(uid)
        if member is not None and member.process_round == process_round:
            member.started = True

    def process_exited(self, uid: str, process_round: int, exit_code: int, now: float, *, requested: bool) -> None:
        """A training process has ended. Repeating the report changes nothing."""
        member = self.members.get(uid)
        if member is None or process_round == 0 or member.process_round != process_round:
            return
        self._process_gone(member)
        if member.leaving:
            return
        adapts = self.rules.in_process_elastic
        if desired_commands.must_stop(process_round, round_=self.round, phase=self.phase, in_process_elastic=adapts):
            return  # the members agreed to stop, maybe before this agent had heard of it
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

    def set_draining(self, pods: Mapping[str, float], now: float) -> None:
        """These pods shall leave: name to seconds. The whole set every time; pods not registered yet may be in it."""
        self._draining = dict(pods)
        for member in self.members if pods else ():
            seconds = pods.get(member.identity.pod_name)
            if seconds is not None:
                member.drain(seconds, now)

    def set_standby(self, places: frozenset[tuple[str, int]]) -> bool:
        """These roles and indices replace members that are still at work: only with the end of those a world is formed.

        So a migration costs one change of the world, not two. A world that is formed for another reason takes them in.
        Returns whether this is news.
        """
        before, self.standby = self.standby, places
        return before != places

    def member_leaving(self, uid: str, now: float) -> None:
        """An agent tells that it has to leave, as on SIGTERM."""
        member = self.members.get(uid)
        if member is not None:
            member.drain(self.timing.stop, now)

    def restart_training(self) -> None:
        """Have all training processes stopped at once and a new world formed, as when they hang."""
        if self.phase == "training":
            self.phase = "reforming"
        self.world_failed = self.member_lost = True

    def extend_deadlines(self, seconds: float) -> None:
        """The master itself stood still for so long: nobody is to blame for silence in that time."""
        for member in self.members:
            member.last_heard_at += seconds
            member.node_check.deadline += seconds
            if member.stop_due is not None:
                member.stop_due += seconds
            if member.exit_due is not None:
                member.exit_due += seconds
            if member.disconnected_since is not None:
                member.disconnected_since += seconds

    # --- decisions ---------------------------------------------------------------------------------------------------

    def advance(self, now: float) -> list[Command]:
        """Decide everything that the facts allow now, and return what has to be done."""
        if self._looked_at is None or now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            self._look(now)
        node_check.advance(self, now)
        self._judge_crashes(now)
        before = None
        while before != (self.phase, self.round):  # at most: training -> reforming -> waiting -> training
            before = (self.phase, self.round)
            world_changes.apply_transitions(self, now)
        moment = desired_commands.Moment(
            now, self.round, self.phase, self.world_uids, self.rules.in_process_elastic, at_once=self.stop_without_grace
        )
        for member in self.members:
            if member.disconnected_since is None:
                told = desired_commands.desired_command(member, moment)
                if told is not None and told is not member.last_command and told != member.last_command:
                    self._out.append(
                        desired_commands.issue_command(member, told, now=now, timing=self.timing, check=self.node_check)
                    )
        out, self._out = self._out, []
        return out

    def restore(
        self,
        *,
        phase: Phase,
        process_round: int,
        world: tuple[str, ...],
        finished: bool,
        now: float,
        world_failed: bool = False,
        world_incomplete: bool = False,
    ) -> None:
        """Go on where an earlier master stopped; nobody is lost until its agent had time to reconnect."""
        self.phase, self.round = phase, process_round
        self.world_failed = self.member_lost = world_failed
        self.world_incomplete, self.member_finished = world_incomplete, phase == "finishing"
        self.unstored_rounds = _ROUNDS_IN_A_WRITE if process_round else 0
        self.set_world(world)
        self.formed_at = now if world else None
        self.finished_at = now if finished else None
        self.reconnect_deadline = now + self.timing.lost

    def _look(self, now: float) -> None:
        """Find those whose time is over."""
        for member in list(self.members):
            member.suspected = failure_detection.is_suspected(member, self.timing, now)
            if failure_detection.is_lost(member, self.timing, now):
                self._lose(member)
            elif member.exit_due is not None and now > member.exit_due:
                self._process_gone(member)
                self.world_incomplete = True

    def _judge_crashes(self, now: float) -> None:
        crashed = [m for m in self.members if m.crashed_at is not None]
        if not crashed:
            return
        away = any(m.disconnected_since is not None for m in self.world_members())
        found = failure_detection.members_at_fault(
            crashed,
            alone=len(self.world) <= 1,
            excused=self.member_lost or self.member_finished or away or self.phase in ("reforming", "waiting"),
            in_process_elastic=self.rules.in_process_elastic,
            timing=self.timing,
            now=now,
        )
        if found is None:
            return
        for member in crashed:
            member.crashed_at = None
            member.exiting = member in found
        self.world_failed = True

    # --- facts -------------------------------------------------------------------------------------------------------

    def _reconcile(self, member: Member, running_round: int, now: float) -> None:
        """Take the agent's word for what runs there."""
        if running_round > self.round:
            # A world this master has forgotten, so who belongs to it is not known: form the next one in its place.
            self.round, self.world_incomplete = running_round, True
        if running_round:
            if member.process_round not in (0, running_round):
                self._process_gone(member)  # an earlier process, whose end a restarted master has forgotten
            member.process_round, member.started, member.exit_due = running_round, True, None
            member.last_round = max(member.last_round, running_round)
        elif member.process_round and member.started:
            member.exit_due = now + self.timing.exit_report
        elif member.process_round:
            member.process_round = 0  # the Start got lost with the stream that carried it
        member.stop_due = None

    def _process_gone(self, member: Member) -> None:
        member.process_ended()
        self._out.append(ReleaseLeases(member.uid))

    def _lose(self, member: Member) -> None:
        # Also one whose process has not been started yet: the others wait for it.
        missing = bool(member.process_round) or member.crashed_at is not None or member.last_round < self.round
        if member.uid in self.world_uids and missing and not self.rules.in_process_elastic:
            self.world_failed = self.member_lost = True
        self.members.remove(member)
        self._out += [ReleaseLeases(member.uid), MemberRemoved(member.uid)]
