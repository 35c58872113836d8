"""The events of the rendezvous that agents report. Most change only facts about one member.

An event of a pod that is not a member is ignored.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob_api.step_report import StepReport

from elasticjob_master.core.rendezvous import (
    desired_commands,
    failure_detection,
    node_check,
    notified_processes,
    vanished_nodes,
)
from elasticjob_master.core.rendezvous.commands import Command
from elasticjob_master.core.rendezvous.events import Event
from elasticjob_master.core.rendezvous.members import Identity, Link, Member, Usage
from elasticjob_master.core.rendezvous.state import RendezvousState


@dataclass(frozen=True)
class MemberRegistered(Event):
    """A pod's agent has registered. `Members.check_registration` has accepted it.

    The pod becomes a member, in place of an earlier pod with its role and index.
    """

    identity: Identity

    def apply(self, state: RendezvousState, now: float) -> list[Command]:
        commands: list[Command] = []
        identity = self.identity
        predecessor = state.members.member_at(identity)
        if predecessor is not None and predecessor.uid != identity.pod_uid:
            commands = state.remove_member(predecessor)
        member = state.members.get(identity.pod_uid)
        if member is None:
            member = state.members.add(identity, now)
            if state.in_world(member.uid):
                # It was removed, so the others know that it has ended: no second start.
                member.last_round = state.round
            if state.end_expected is not None and state.end_expected[0] == identity.key:
                state.end_expected = None  # the failure was not counted
        member.identity = identity
        state.note(member.uid)
        if identity.pod_name in state.draining_pods:
            member.drain(state.draining_pods[identity.pod_name], now)
        return commands


@dataclass(frozen=True)
class MemberConnected(Event):
    """A member has opened a stream, and reports what runs there.

    Attributes:
        running_round: the round of the process that runs there; 0: none runs.
        joined_round: the latest world after its start in which that process has its place.
        draining: the agent has been asked to end, as by SIGTERM.
        watches: the agent can watch and probe other members.
    """

    uid: str
    running_round: int = 0
    joined_round: int = 0
    draining: bool = False
    watches: bool = False

    def apply(self, state: RendezvousState, now: float) -> list[Command]:
        member = _sender(state, self.uid, now)
        if member is None:
            return []
        state.members.set_disconnected(member, None)
        state.members.awaited.discard(self.uid)
        replaced = notified_processes.was_replaced(state, member, self.running_round)
        member.last_command = None
        member.watches = self.watches
        member.watched = None
        member.suspected = False
        commands = self._adopt_running_process(state, member, now)
        if self.running_round:
            # If an earlier master formed that world and did not store it, another one is formed.
            state.round = max(state.round, self.joined_round)
            member.joined_round = max(member.joined_round, self.joined_round)
            if replaced:
                member.renewal = "at_once"
        if self.draining:
            member.drain(state.timing.stop, now)
        member.joined_at = None if state.in_world(self.uid) else now
        return commands

    def _adopt_running_process(
        self, state: RendezvousState, member: Member, now: float
    ) -> list[Command]:
        """Bring the facts about a member in line with the process that its agent reports."""
        commands: list[Command] = []
        running_round = self.running_round
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


@dataclass(frozen=True)
class MemberDisconnected(Event):
    """A member's stream has ended.

    Its next stream is awaited, unless it was asked to leave and has left.
    """

    uid: str

    def apply(self, state: RendezvousState, now: float) -> list[Command]:
        member = state.members.get(self.uid)
        if member is None:
            return []
        if member.leaving and not member.succeeded and not member.process_round:
            return state.remove_member(member)
        state.members.set_disconnected(member, now)
        state.note(member.uid)
        return []


@dataclass(frozen=True)
class HeartbeatReceived(Event):
    """A member is alive and reports the resources that its process uses.

    Attributes:
        standby: the number of its processes in standby, and why there are none.
    """

    uid: str
    usage: Usage
    standby: tuple[int, str] = (0, "")

    def apply(self, state: RendezvousState, now: float) -> None:
        member = _heard(state, self.uid, now)
        if member is not None:
            member.usage = self.usage
            member.standby = self.standby


@dataclass(frozen=True)
class StepsReported(Event):
    """A member's process has finished training steps."""

    uid: str
    report: StepReport

    def apply(self, state: RendezvousState, now: float) -> None:
        member = _heard(state, self.uid, now)
        if member is not None:
            report = self.report
            steps = report.steps or max(0, report.step - member.step)
            member.step_times.add(report, steps, now)
            member.step = report.step


@dataclass(frozen=True)
class ProcessRestarted(Event):
    """A member's agent has started its crashed process again in the pod, for the n-th time.

    No decision depends on it.
    """

    uid: str
    restarts: int

    def apply(self, state: RendezvousState, now: float) -> None:
        member = _heard(state, self.uid, now)
        if member is not None:
            member.restarts = self.restarts


@dataclass(frozen=True)
class ProcessStarted(Event):
    """A member has started the process of a round."""

    uid: str
    round: int

    def apply(self, state: RendezvousState, now: float) -> None:
        member = _sender(state, self.uid, now)
        if member is not None and member.process_round == self.round:
            member.started = True
            member.crash_excused = False
            state.unfit.pop(member.identity.key, None)


_KILLED = 128 + signal.SIGKILL
"""The exit code of a process that SIGKILL has ended, as a shell reports it."""


@dataclass(frozen=True)
class ProcessExited(Event):
    """The process of a round has ended on a member: as it should, successfully, or by a crash.

    Attributes:
        requested: the agent had been asked to stop it.
        retry: it has crashed, and its agent may start it again in the next world.
        failed_seconds_ago: when the first of the member's processes failed.
        node_problem: why the node is broken, by the agent's rules; empty: nothing says so.
    """

    uid: str
    round: int
    exit_code: int
    requested: bool = False
    retry: bool = False
    failed_seconds_ago: float = 0.0
    node_problem: str = ""

    def apply(self, state: RendezvousState, now: float) -> list[Command]:
        member = _sender(state, self.uid, now)
        if member is None or self.round == 0 or member.process_round != self.round:
            return []
        # The processes may agree among themselves to stop, before this agent has got the command.
        stopping = desired_commands.must_stop(state, member)
        behind = desired_commands.is_behind(state, member)
        commands = state.end_process(member)
        if member.leaving or stopping:
            return commands
        if self.requested:
            state.world_incomplete = True
        elif self.exit_code == 0:
            _record_success(state, member, now)
            # It has finished in an earlier world, and this one, without it, cannot begin.
            state.world_incomplete = state.world_incomplete or behind
        else:
            member.crashed_at = now
            member.node_problem = self.node_problem
            member.killed = self.exit_code == _KILLED
            member.retry = self.retry
            member.ends_job = failure_detection.ends_job(state, member, self.exit_code)
            member.failed_at = now - self.failed_seconds_ago
        return commands


@dataclass(frozen=True)
class PlaceRequested(Event):
    """A process asks for its place in the next world. `check_process` has accepted it.

    An earlier request that arrives late changes nothing.

    Attributes:
        left_round: the round of the world that it has left; 0: it was in none.
    """

    uid: str
    left_round: int

    def apply(self, state: RendezvousState, now: float) -> None:
        member = state.members.get(self.uid)
        if member is not None and self.left_round >= member.joined_round:
            member.joined_round = self.left_round
            member.joining = True
            state.note(member.uid)


@dataclass(frozen=True)
class PlaceTaken(Event):
    """A process has got its place in the world of a round."""

    uid: str
    round: int

    def apply(self, state: RendezvousState, now: float) -> None:
        member = _sender(state, self.uid, now)
        if member is None or not member.process_round:
            return
        if member.joined_round < self.round <= state.round:
            member.joined_round = self.round
            member.joining = False
            member.take_world_due = None


@dataclass(frozen=True)
class WorldLeft(Event):
    """The process of a member has left the world of a round. See `Member.left`."""

    uid: str
    round: int
    ends: bool = False

    def apply(self, state: RendezvousState, now: float) -> None:
        member = _sender(state, self.uid, now)
        if member is not None and member.taken_round == self.round == state.round:
            member.left = "ends" if self.ends else "waits"


@dataclass(frozen=True)
class MemberLeaving(Event):
    """A member has to leave, because its node or the user ends its pod."""

    uid: str

    def apply(self, state: RendezvousState, now: float) -> None:
        member = _sender(state, self.uid, now)
        if member is not None:
            member.drain(state.timing.stop, now)


@dataclass(frozen=True)
class NodeChecked(Event):
    """A member has checked its node. `number` is that of the check."""

    uid: str
    number: int
    seconds: float
    problem: str = ""
    unreached: tuple[str, ...] = ()
    links: Mapping[str, Link] = field(default_factory=dict)
    device: str = ""
    device_seconds: float = 0.0

    def apply(self, state: RendezvousState, now: float) -> None:
        member = _sender(state, self.uid, now)
        if member is not None:
            node_check.record_answer(member, self)


@dataclass(frozen=True)
class NodeUnreached(Event):
    """The node of an address, which a member watches and has reached, does not answer it."""

    uid: str
    address: str
    seconds_ago: float

    def apply(self, state: RendezvousState, now: float) -> None:
        if _heard(state, self.uid, now) is not None:
            vanished_nodes.suspect(state, self.uid, self.address, now - self.seconds_ago, now)


@dataclass(frozen=True)
class NodesProbed(Event):
    """A member has tried to reach the addresses of the probe with this number."""

    uid: str
    number: int
    unreached: frozenset[str] = frozenset()

    def apply(self, state: RendezvousState, now: float) -> None:
        if _heard(state, self.uid, now) is not None:
            vanished_nodes.record_probe(state, self.uid, self.number, self.unreached)


def _record_success(state: RendezvousState, member: Member, now: float) -> None:
    """Record that a member has finished, and the job with it if its role decides about that."""
    member.succeeded = True
    if state.rules.deciding_role in (None, member.identity.role):
        state.phase = "finishing"
        if state.finished_at is None:
            state.finished_at = now


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
