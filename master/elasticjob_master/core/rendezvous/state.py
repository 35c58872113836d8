"""Everything the rendezvous knows of the job and of its present world, in one place for those who decide from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from elasticjob_api.health import NodeCheck

from elasticjob_master.core.rendezvous import world_formation
from elasticjob_master.core.rendezvous.members import Member, Members
from elasticjob_master.core.rendezvous.rules import Phase, RoleSize, Rules, Timing


@dataclass
class RendezvousState:
    """Facts. Every decision is made from them, and they are all there is.

    Attributes:
        sizes: of the roles; None: not known yet.
        unfit: pods whose nodes were found not fit, and why, by role and index; until another pod there is fit.
        world: the present world's members by rank; of the last one while none is there.
        confirmed_at: when all of the world had started.
        finished_at: when the first member had finished.
        reconnect_deadline: until when a restarted master waits for members that are not back yet.
        world_failed: a member of the world has failed or is lost: the others' processes can save nothing any more.
        world_incomplete: what runs is not the whole world.
        member_lost: the world has lost a member, reason enough for others to fail.
        member_finished: a member of this world has finished.
        stop_without_grace: those who are being stopped get no time.
        unstored_rounds: rounds that an earlier master may have begun without storing them; their numbers are skipped.
        standby: roles and indices that wait for the end of those they replace.
    """

    members: Members
    rules: Rules = field(default_factory=Rules)
    timing: Timing = field(default_factory=Timing)
    sizes: Mapping[str, RoleSize] | None = None
    node_check: NodeCheck = field(default_factory=NodeCheck)
    unfit: dict[tuple[str, int], tuple[str, str]] = field(default_factory=dict)
    round: int = 0
    phase: Phase = "waiting"
    world: tuple[str, ...] = ()
    formed_at: float | None = None
    confirmed_at: float | None = None
    finished_at: float | None = None
    reconnect_deadline: float | None = None
    world_failed: bool = False
    world_incomplete: bool = False
    member_lost: bool = False
    member_finished: bool = False
    stop_without_grace: bool = False
    unstored_rounds: int = 0
    standby: frozenset[tuple[str, int]] = frozenset()
    world_uids: frozenset[str] = frozenset()

    @property
    def world_settled(self) -> bool:
        """No world change is going on: the published hosts may change."""
        return self.phase in ("waiting", "finishing") or (self.phase == "training" and self.confirmed_at is not None)

    def in_world(self, uid: str) -> bool:
        """Tell whether a pod belongs to the present world."""
        return uid in self.world_uids

    def set_world(self, world: tuple[str, ...]) -> None:
        """Make these the present world's members, by rank."""
        self.world, self.world_uids = world, frozenset(world)

    def world_members(self) -> Iterator[Member]:
        """Return the members of the present world that are still there, by rank."""
        return (m for m in map(self.members.get, self.world) if m is not None)

    def joiners(self) -> list[Member]:
        """Return who waits for the next world, without those who wait for somebody's end."""
        others = (m for m in self.members if m.uid not in self.world_uids and m.available)
        return [m for m in others if (m.identity.role, m.identity.index) not in self.standby]

    def counted_members(self) -> Iterator[Member]:
        """Return who counts for the size of a role: also who has done its part already, for nobody takes its place."""
        return (m for m in self.members if m.available or m.succeeded)

    def joins_settled(self, now: float) -> bool:
        """Tell whether nobody has to be waited for: all are there, or those who have joined have waited enough."""
        if self.sizes is not None and world_formation.has_enough_members(
            self.counted_members(), self.sizes, all_desired=True
        ):
            return True
        return world_formation.joins_settled(self.joiners(), timing=self.timing, first_world=self.round == 0, now=now)
