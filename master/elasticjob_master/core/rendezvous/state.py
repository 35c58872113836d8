"""The facts from which the rendezvous decides: the members, the settings and the present world."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from elasticjob_api.health import NodeCheck
from elasticjob_api.pod_identity import MemberKey

from elasticjob_master.core.rendezvous import watches, world_formation
from elasticjob_master.core.rendezvous.census import Census
from elasticjob_master.core.rendezvous.commands import Command, MemberRemoved, ReleaseLeases
from elasticjob_master.core.rendezvous.members import Member, Members
from elasticjob_master.core.rendezvous.rules import Phase, RoleSize, Rules, Timing
from elasticjob_master.core.rendezvous.watches import Suspicions

MOST_LOST_ROUNDS = 1_000_000
"""The number of rounds that earlier masters may have given after the state was stored. It may be
lost, or restored from a backup. No job has had more rounds.
"""
_NO_SIZE = RoleSize(0, 0)


@dataclass
class RendezvousState:
    """All facts about the job that decisions depend on. Only `advance` changes them.

    Times are those of the clock that is passed in as `now`.

    Attributes:
        sizes: the roles' sizes; None until they are known.
        domains: the known topology domains of members, by role and index.
        unfit: the pods whose nodes are not fit, with the problems, by role and index. A pod there
            that passes the check, or starts to train, clears it.
        broken_nodes: the nodes on which a member has failed uncounted, as they were broken.
        round: the number of the present world, or of the last one; 0 before the first.
        world: the UIDs of the present world's members by rank, or those of the last world.
        world_uids: the same UIDs as a set.
        formed_at: when the present world was formed.
        confirmed_at: when all its members had confirmed that their processes run.
        finished_at: when the first member of the job finished successfully.
        reconnect_deadline: until then a restarted master forms no world while members are
            disconnected.
        world_failed: a member of the world has failed or is lost, or the training is being
            restarted. The processes cannot save anything, and their failures are consequences.
        world_incomplete: a process of the world has ended without failing or succeeding, or a
            restarted master does not know the world that runs.
        unstored_rounds: the number of rounds that an earlier master may have begun and not stored.
            Their numbers are skipped.
        restored: the state of an earlier master is known. Otherwise it may be lost.
        successors: roles and indices of members that wait for the end of the members they replace.
        shared_state: another master may claim the stored state. No unstored world is started.
        stored_round: the round of the latest stored world.
        stored_at: when the latest successful write of the state began.
        store_needed: something waits for a write of the state. Each decision sets it.
        begun_round: with an elastic driver, the round of the latest world whose members are given
            their places.
        settled_uids: with an elastic driver, the UIDs of the latest world in which each member has
            its place.
        end_expected: the role and index of the member whose failure ends the job, and until when
            the others wait for that; None after its next pod has registered.
        draining_pods: the pods that the operator wants to leave, and the seconds they may take.
        watched: the addresses that each member of the present world watches, by UID.
        suspicions: the nodes that do not answer those who watch them.
        timeouts_checked_at: when the deadlines of all members were checked last.
        changes: grows with every change of members.
        commands_due: the UIDs of the members whose command may differ from the last one they were
            sent, in the order in which they have changed.
        commands_left: another decision should follow at once, which returns further commands.
        commanded_by: the facts about the job with which the commands of the others were decided.
    """

    members: Members = field(default_factory=Members)
    rules: Rules = field(default_factory=Rules)
    timing: Timing = field(default_factory=Timing)
    sizes: Mapping[str, RoleSize] | None = None
    domains: Mapping[MemberKey, str] = field(default_factory=dict)
    node_check: NodeCheck = field(default_factory=NodeCheck)
    unfit: dict[MemberKey, tuple[str, str]] = field(default_factory=dict)
    broken_nodes: list[str] = field(default_factory=list)
    round: int = 0
    phase: Phase = "waiting"
    world: tuple[str, ...] = ()
    formed_at: float | None = None
    confirmed_at: float | None = None
    finished_at: float | None = None
    reconnect_deadline: float | None = None
    world_failed: bool = False
    world_incomplete: bool = False
    unstored_rounds: int = 0
    restored: bool = False
    successors: frozenset[MemberKey] = frozenset()
    shared_state: bool = False
    stored_round: int = 0
    stored_at: float = -math.inf
    store_needed: bool = False
    world_uids: frozenset[str] = frozenset()
    begun_round: int = 0
    settled_uids: frozenset[str] = frozenset()
    end_expected: tuple[MemberKey, float] | None = None
    draining_pods: Mapping[str, float] = field(default_factory=dict)
    watched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    suspicions: Suspicions = field(default_factory=Suspicions)
    timeouts_checked_at: float = -math.inf
    changes: int = 0
    commands_due: dict[str, None] = field(default_factory=dict)
    commands_left: bool = False
    commanded_by: object = None
    _census: Census = field(default_factory=Census)
    _changed: dict[str, None] = field(default_factory=dict)

    @property
    def census(self) -> Census:
        """What is known of all members together, as of now."""
        self.adopt_changes()
        return self._census

    def adopt_changes(self) -> None:
        """Update the census for the members that have changed. Their commands are due."""
        if not self._changed:
            return
        for uid in self._changed:
            member = self.members.get(uid)
            if member is None:
                self._census.remove(uid)
            else:
                is_successor = self.is_successor(member)
                self._census.update(member, in_world=self.in_world(uid), is_successor=is_successor)
        self.changes += 1
        self.commands_due |= self._changed
        self._changed.clear()

    def note(self, uid: str) -> None:
        """Record that a fact about a member has changed on which decisions depend."""
        self._changed[uid] = None

    def note_all(self) -> None:
        """Record that facts about any member may have changed."""
        for member in self.members:
            self.note(member.uid)

    @property
    def stop_without_grace(self) -> bool:
        """Whether processes are stopped without grace period, because they cannot save anything."""
        return self.world_failed and self.phase in ("reforming", "waiting")

    @property
    def world_settled(self) -> bool:
        """Whether the published host list may change: no change of the world is in progress."""
        return self.phase in ("waiting", "finishing") or (
            self.phase == "training" and self.confirmed_at is not None
        )

    @property
    def latest_given_round(self) -> int:
        """The latest round that a master of this job can have sent to an agent.

        The stored state may be older than the agents' processes, or lost.
        """
        return self.round + MOST_LOST_ROUNDS

    def stored_before(self, process_round: int) -> bool:
        """Return whether the restored state is older than the latest one of earlier masters.

        A process of this round shows it.
        """
        return self.restored and process_round > self.round + self.unstored_rounds

    def in_world(self, uid: str) -> bool:
        """Return whether a pod belongs to the present world."""
        return uid in self.world_uids

    def set_world(self, world: tuple[str, ...]) -> None:
        """Set the members of the present world, by rank."""
        self.world = world
        self.world_uids = frozenset(world)
        self.watched = watches.of_world([*self.world_members()])
        self.note_all()

    def form_world(self, members: Sequence[Member], now: float) -> None:
        """Begin the next round with these members, oldest first."""
        for member in self.world_members():
            member.left = ""
        self.set_world(world_formation.rank_order(self.world, members, self.domains))
        self.round += 1 + self.unstored_rounds
        self.unstored_rounds = 0
        self.phase = "training"
        self.formed_at = now
        self.confirmed_at = None
        self.world_failed = False
        self.world_incomplete = False

    def end_process(self, member: Member) -> list[Command]:
        """Record that a member's process has ended, and return the commands that follow."""
        member.process_ended()
        self.note(member.uid)
        self.members.awaited.discard(member.uid)
        return [ReleaseLeases(member.uid)]

    def remove_member(self, member: Member) -> list[Command]:
        """Remove a member, and return the commands that follow.

        The world has failed if the member's process takes part in it, or has yet to.
        """
        was_needed = (
            bool(member.process_round)
            or member.crashed_at is not None
            or member.last_round < self.round
        )
        if self.in_world(member.uid) and was_needed and not self.rules.in_process_elastic:
            self.world_failed = True
        self.members.remove(member)
        self.note(member.uid)
        return [ReleaseLeases(member.uid), MemberRemoved(member.uid, member)]

    def world_members(self) -> Iterator[Member]:
        """Return the members of the present world that still exist, by rank."""
        return (m for m in map(self.members.get, self.world) if m is not None)

    def starts_anew(self) -> bool:
        """Return whether no member of the present world exists any more.

        The next world is the first one, or all pods were replaced.
        """
        return not self.census.survivors

    def keeps_process(self, member: Member) -> bool:
        """Return whether a member's process continues when the world changes now."""
        if self.rules.in_process_elastic:
            return self.phase != "reforming"  # only a restart of all processes leads there
        return self.continues(member) and not member.leaving

    def continues(self, member: Member) -> bool:
        """Return whether a member's process continues from world to world, also if it leaves."""
        size = self._size(member)
        return (size.kept or size.notified) and not member.renewal

    def is_kept(self, member: Member) -> bool:
        """Return whether a member's role is kept: its processes continue without notification."""
        return self._size(member).kept

    def barrier_uids(self) -> tuple[str, ...]:
        """Return the UIDs of the world's members that meet at barriers.

        Processes that were kept from an earlier round do not call barriers.
        """
        if not any(size.kept for size in (self.sizes or {}).values()):
            return self.world
        return tuple(
            m.uid
            for m in self.world_members()
            if not (self.is_kept(m) and 0 < m.process_round < self.round)
        )

    def ended_members(self) -> dict[str, str]:
        """Return the members of the world that run no process, now and later in this round.

        Returns:
            Their pods by UID.
        """
        ended = {}
        for uid in self.world:
            member = self.members.get(uid)
            if member is None:
                ended[uid] = "a pod that was removed"
            elif not self._may_run(member):
                ended[uid] = member.identity.pod_name
        return ended

    def _may_run(self, member: Member) -> bool:
        """Return whether a member of the world may run a process, or gets one in this round."""
        if member.process_round or member.uid in self.members.awaited:
            return True
        return self.phase == "training" and member.last_round < self.round and not member.leaving

    def is_notified(self, member: Member) -> bool:
        """Return whether a member's role is notified of each new world."""
        return self._size(member).notified

    def _size(self, member: Member) -> RoleSize:
        return (self.sizes or {}).get(member.identity.role, _NO_SIZE)

    def must_end_first(self) -> Iterator[Member]:
        """Return the connected members whose processes have to end before the next world."""
        return (
            m
            for m in self.running()
            if m.disconnected_since is None
            and not self.keeps_process(m)
            and not (m.left == "ends" and self.continues(m))
        )

    def running(self) -> Iterator[Member]:
        """Return the members of the present world that run a process, in any order."""
        uids = (uid for uid in self.census.running if uid in self.world_uids)
        return (m for m in map(self.members.get, uids) if m is not None)

    def is_successor(self, member: Member) -> bool:
        """Return whether a member waits for the end of the one that it replaces."""
        return member.identity.key in self.successors

    def awaits_reconnections(self, now: float) -> bool:
        """Return whether this master has restarted and does not know yet which processes run."""
        deadline = self.reconnect_deadline
        return deadline is not None and now < deadline and bool(self.members.disconnected)

    def may_start(self, now: float) -> bool:
        """Return whether the present world may be started.

        A shared state must contain it, by a recent write. So a later master, which begins by
        claiming the state, knows every world that was started.
        """
        stored = self.stored_round >= self.round and now - self.stored_at <= self.timing.fence
        return stored or not self.shared_state

    def joins_settled(self, now: float) -> bool:
        """Return whether all desired members are available, or the join window has closed."""
        if self.sizes is not None:
            counts = self.census.counts()
            if world_formation.has_enough_members(counts, self.sizes, all_desired=True):
                return True
        return world_formation.joins_settled(
            self.census.join_times(), timing=self.timing, at_start=self.starts_anew(), now=now
        )
