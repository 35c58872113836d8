"""The events of the rendezvous that come from the operator and from the master itself.

An event is a fact. `apply` records it in the state and decides nothing, except that a success
begins the end of the job and a hang the end of the world. So a repeated report changes nothing.
`member_events` has the events that agents report.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob_api.health import NodeCheck
from elasticjob_api.pod_identity import MemberKey

from elasticjob_master.core.rendezvous import notified_processes
from elasticjob_master.core.rendezvous.commands import Command
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.rules import Phase, RoleSize, Rules, Timing
from elasticjob_master.core.rendezvous.state import RendezvousState

_MOST_UNSTORED_ROUNDS = 1
"""The number of worlds that a master can form before the first is stored, while storing works."""


class Event(ABC):
    """Something that has happened."""

    @abstractmethod
    def apply(self, state: RendezvousState, now: float) -> list[Command] | None:
        """Record it in the state, and return the commands that follow at once, if any."""


# --- from the operator


@dataclass(frozen=True)
class SettingsObserved(Event):
    """The settings of the job as they are now.

    Attributes:
        sizes: the roles' sizes.
        domains: the known topology domains of members, by role and index.
    """

    sizes: Mapping[str, RoleSize] | None
    rules: Rules
    timing: Timing
    domains: Mapping[MemberKey, str] = field(default_factory=dict)
    node_check: NodeCheck = field(default_factory=NodeCheck)

    def apply(self, state: RendezvousState, now: float) -> None:
        state.sizes = self.sizes
        state.rules = self.rules
        state.timing = self.timing
        state.domains = self.domains
        state.node_check = self.node_check


@dataclass(frozen=True)
class DrainOrdered(Event):
    """The operator ordered these pods, and no others, to leave.

    Maps the names of pods to the seconds they may take. A pod may not have registered yet. A member
    that drains already continues to drain.
    """

    seconds: Mapping[str, float]

    def apply(self, state: RendezvousState, now: float) -> None:
        state.draining_pods = self.seconds
        if self.seconds:
            for member in state.members:
                seconds = self.seconds.get(member.identity.pod_name)
                if seconds is not None:
                    member.drain(seconds, now)
                    state.note(member.uid)


@dataclass(frozen=True)
class SuccessorsChanged(Event):
    """The members of these roles and indices, and no others, wait for the end of others.

    They alone are no reason for a new world, so a migration costs one world change and not two. A
    world that is formed for another reason includes them.
    """

    places: frozenset[MemberKey]

    def apply(self, state: RendezvousState, now: float) -> None:
        state.successors = self.places
        state.note_all()


# --- from the master


@dataclass(frozen=True)
class TrainingHung(Event):
    """The training processes make no progress any more, as the health monitor found.

    All of them are killed, and a new world is formed.
    """

    def apply(self, state: RendezvousState, now: float) -> None:
        if state.phase == "training":
            state.phase = "reforming"
        state.world_failed = True
        notified_processes.renew_all(state)


@dataclass(frozen=True)
class MasterStalled(Event):
    """The master itself was suspended for some seconds, in which it received nothing.

    The deadlines of all members are extended by that time.
    """

    seconds: float

    def apply(self, state: RendezvousState, now: float) -> None:
        for member in state.members:
            member.last_heard_at += self.seconds
            member.node_check.deadline += self.seconds
            if member.stop_due is not None:
                member.stop_due += self.seconds
            if member.exit_due is not None:
                member.exit_due += self.seconds
            if member.take_world_due is not None:
                member.take_world_due += self.seconds
            if member.disconnected_since is not None:
                member.disconnected_since += self.seconds


@dataclass(frozen=True)
class StateShared(Event):
    """Another master can claim the stored state: a world must be stored before it is started."""

    def apply(self, state: RendezvousState, now: float) -> None:
        state.shared_state = True


@dataclass(frozen=True)
class StateStored(Event):
    """The state was stored, with the world of this round, by a write that began at this time."""

    round: int
    began_at: float

    def apply(self, state: RendezvousState, now: float) -> None:
        state.stored_round = self.round
        state.stored_at = self.began_at


@dataclass(frozen=True)
class StateRestored(Event):
    """The state of an earlier master is known. Its members get the usual time to reconnect.

    Attributes:
        world: the UIDs of the world's members by rank.
        finished: a member of the job had finished successfully.
    """

    members: tuple[Member, ...]
    phase: Phase
    round: int
    world: tuple[str, ...]
    finished: bool = False
    world_failed: bool = False
    world_incomplete: bool = False
    successors: frozenset[MemberKey] = frozenset()
    unfit: Mapping[MemberKey, tuple[str, str]] = field(default_factory=dict)
    broken_nodes: tuple[str, ...] = ()

    def apply(self, state: RendezvousState, now: float) -> None:
        world = set(self.world)
        for member in self.members:
            state.members.restore(member, in_world=member.uid in world)
        state.restored = True
        state.phase = self.phase
        state.round = self.round
        if self.round:
            state.unstored_rounds = _MOST_UNSTORED_ROUNDS
        state.set_world(self.world)
        if self.world:
            state.formed_at = now
        if self.finished:
            state.finished_at = now
        state.world_failed = self.world_failed
        state.world_incomplete = self.world_incomplete
        state.successors = self.successors
        state.unfit = dict(self.unfit)
        state.broken_nodes = list(self.broken_nodes)
        state.reconnect_deadline = now + state.timing.lost
