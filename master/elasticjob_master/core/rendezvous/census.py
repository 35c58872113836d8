"""Answers what decisions ask about all members, from the members that have changed.

A decision follows every few events, and a job has up to 10,000 members. So a decision must not look
at each of them: an event marks its member, and the sets here are updated for the marked ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from elasticjob_master.core.rendezvous import world_formation
from elasticjob_master.core.rendezvous.members import UNFINISHED_STAGES, Member


class Census:
    """The UIDs of members by the facts that decisions depend on.

    Attributes:
        counted: those that count for the size of each role: available or succeeded.
        available: those that can be part of a world.
        survivors: those of the present world that still exist.
        unconfirmed: survivors whose processes have yet to start.
        running: those with a process, or with one that is being started.
        left: survivors whose processes run and have left the present world.
        crashed: those with a crash for which it is not decided which member was at fault.
        draining: those that were asked to leave.
        unchecked: those whose node check is not finished.
        fresh: those that have run no process and were not checked.
        joined: when the available members outside the world have joined, without successors and
            without crashes that are not decided.
    """

    def __init__(self) -> None:
        self.counted: dict[str, set[str]] = {}
        self.available: set[str] = set()
        self.survivors: set[str] = set()
        self.unconfirmed: set[str] = set()
        self.running: set[str] = set()
        self.left: set[str] = set()
        self.crashed: set[str] = set()
        self.draining: set[str] = set()
        self.unchecked: set[str] = set()
        self.fresh: set[str] = set()
        self.joined: dict[str, float | None] = {}
        self._join_times: tuple[float, float] | None = None

    def counts(self) -> Mapping[str, int]:
        """Return by role how many members count for its size."""
        return {role: len(uids) for role, uids in self.counted.items()}

    def join_times(self) -> tuple[float, float] | None:
        """Return when the first and the last member in `joined` have joined, if that is known."""
        if self._join_times is None:
            self._join_times = world_formation.join_times(self.joined.values())
        return self._join_times

    def update(self, member: Member, *, in_world: bool, is_successor: bool) -> None:
        """Adopt the present facts of a member."""
        uid = member.uid
        stage = member.node_check.stage
        available = member.available
        crashed = member.crashed_at is not None
        ran = bool(member.process_round or member.last_round)
        starts = in_world and not (member.started or crashed or member.leaving)
        counted = self.counted.setdefault(member.identity.role, set())
        _put(counted, uid, available or member.succeeded)
        _put(self.available, uid, available)
        _put(self.survivors, uid, in_world)
        _put(self.unconfirmed, uid, starts)
        _put(self.running, uid, member.process_round > 0)
        _put(self.left, uid, in_world and bool(member.left))
        _put(self.crashed, uid, crashed)
        _put(self.draining, uid, member.draining_since is not None)
        _put(self.unchecked, uid, stage in UNFINISHED_STAGES)
        _put(self.fresh, uid, stage == "none" and not ran)
        if not available or in_world or is_successor or crashed:
            self._forget_join(uid)
        elif uid not in self.joined or self.joined[uid] != member.joined_at:
            self._forget_join(uid)
            self._record_join(uid, member.joined_at)

    def remove(self, uid: str) -> None:
        """Forget a member that was removed."""
        for uids in (*self.counted.values(), *vars(self).values()):
            if isinstance(uids, set):
                uids.discard(uid)
        self._forget_join(uid)

    def _forget_join(self, uid: str) -> None:
        if self.joined.pop(uid, None) in (self._join_times or ()):
            self._join_times = None  # the others are searched when they are asked for

    def _record_join(self, uid: str, time: float | None) -> None:
        self.joined[uid] = time
        if time is not None and self._join_times is not None:
            first, last = self._join_times
            self._join_times = (min(first, time), max(last, time))


def _put(uids: set[str], uid: str, belongs: bool) -> None:
    if belongs:
        uids.add(uid)
    else:
        uids.discard(uid)
