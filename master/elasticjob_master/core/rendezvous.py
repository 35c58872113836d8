"""Which members train together: worlds, one after the other.

Events change facts about members; `advance` then compares the facts with what ought to be and returns the commands
that are missing. So a repeated, late or lost message, a reconnection or a restart of the master needs no case of its
own. A world is formed once, from members in which no process runs, and ends before the next one is formed; only
frameworks that take changes in their running process get a new world beside the running one.

Phases: waiting (no world) -> training -> reforming (the world is being stopped) -> waiting -> ...; the first member
that finishes makes it finishing: whoever leaves from then on changes no world.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from elasticjob_master.core.commands import Command, Drain, Exit, Release, Removed, Start, Stop
from elasticjob_master.core.members import Identity, Member, Members, Told

Phase = Literal["waiting", "training", "reforming", "finishing"]


@dataclass(frozen=True)
class Timing:
    """Seconds.

    Attributes:
        lost: without a stream, or without a word on it, until a member is taken for lost.
        settle: after a join, in which others may join the same world; nobody waits once all desired members are there.
        settle_first: the same before the first world, when pods of one job start at different speeds.
        settle_limit: the longest a world waits for joins that keep coming.
        crash: after a failure, in which the loss of another member may turn out to be its cause.
        start: until a world counts as formed although not every member has confirmed its start.
        stop: grace of a stop, unless the job says otherwise.
        margin: beyond the grace until a member that does not stop is taken for lost.
        exit_report: for the report of a process that ended while its agent was not connected.
        finishing: that members left over by a finished world have to end by themselves.
        hold: between two changes of a world that adapts itself: it loses a change made while it takes another.
    """

    lost: float = 10.0
    settle: float = 1.0
    settle_first: float = 2.0
    settle_limit: float = 5.0
    crash: float = 2.0
    start: float = 30.0
    stop: float = 30.0
    margin: float = 10.0
    exit_report: float = 5.0
    finishing: float = 60.0
    hold: float = 6.0


@dataclass(frozen=True)
class RoleSize:
    """Fewest members with which a role can train, and how many it shall have."""

    minimum: int
    desired: int


@dataclass(frozen=True)
class Rules:
    """What the framework and the job's policy decide about worlds."""

    adapts_itself: bool = False
    deciding_role: str | None = None
    all_ready: bool = False


class Rendezvous:
    """The state machine. `now` is any clock that does not go back."""

    def __init__(self, members: Members, *, rules: Rules | None = None, timing: Timing | None = None) -> None:
        self.members = members
        self.rules = rules or Rules()
        self.timing = timing or Timing()
        self.sizes: Mapping[str, RoleSize] | None = None
        self.round = 0
        self.phase: Phase = "waiting"
        self.world: tuple[str, ...] = ()
        self.formed_at: float | None = None
        self.confirmed_at: float | None = None
        self.finished_at: float | None = None
        self.resume_until: float | None = None
        self._in_world: frozenset[str] = frozenset()
        self._broken = False
        self._uneven = False
        self._hurt = False
        self._success_in_world = False
        self._stop_at_once = False
        self._first_join: float | None = None
        self._last_join = 0.0
        self._draining: Mapping[str, float] = {}
        self._standing_by: frozenset[tuple[str, int]] = frozenset()
        self._out: list[Command] = []

    # --- events ------------------------------------------------------------------------------------------------------

    def registered(self, identity: Identity, now: float) -> Member:
        """An agent registers. Raises `Refusal` when its place belongs to somebody else."""
        self.members.check(identity)
        holder = self.members.holder(identity)
        if holder is not None and holder.uid != identity.pod_uid:
            self._lose(holder)
        member = self.members.get(identity.pod_uid)
        if member is None:
            member = self.members.add(identity, now)
        member.identity = identity
        if identity.pod_name in self._draining:
            self._drain(member, self._draining[identity.pod_name], now)
        return member

    def connected(self, uid: str, now: float, *, running_round: int = 0, draining: bool = False) -> None:
        """A registered agent opens a stream and tells what runs there."""
        member = self.members.get(uid)
        if member is None:
            return
        self.members.set_away(member, None)
        member.told, member.heard_at = None, now
        self._reconcile(member, running_round, now)
        if draining:
            self._drain(member, self.timing.stop, now)
        if member.available and uid not in self._in_world:
            self._first_join = now if self._first_join is None else self._first_join
            self._last_join = now

    def disconnected(self, uid: str, now: float) -> None:
        """The stream of an agent has ended."""
        member = self.members.get(uid)
        if member is None:
            return
        if member.leaving and not member.succeeded and not member.process_round:
            self._lose(member)  # it has left, as it was asked to
        else:
            self.members.set_away(member, now)

    def started(self, uid: str, process_round: int) -> None:
        """An agent has started its training process."""
        member = self.members.get(uid)
        if member is not None and member.process_round == process_round:
            member.started = True

    def exited(self, uid: str, process_round: int, exit_code: int, now: float, *, asked: bool) -> None:
        """A training process has ended. Repeating the report changes nothing."""
        member = self.members.get(uid)
        if member is None or process_round == 0 or member.process_round != process_round:
            return
        self._process_gone(member)
        if member.leaving:
            return
        if self._stopping(process_round):
            return  # the members agreed to stop, maybe before this agent had heard of it
        if asked:
            self._uneven = True
        elif exit_code == 0:
            member.succeeded = True
            self._success_in_world = True
            if self.rules.deciding_role in (None, member.identity.role):
                self.phase = "finishing"
                self.finished_at = now if self.finished_at is None else self.finished_at
        else:
            member.crashed_at = now

    def drain(self, pods: Mapping[str, float], now: float) -> None:
        """These pods shall leave: name to seconds. The whole set every time; pods not registered yet may be in it."""
        self._draining = dict(pods)
        if pods:
            for member in list(self.members):
                seconds = pods.get(member.identity.pod_name)
                if seconds is not None:
                    self._drain(member, seconds, now)

    def stand_by(self, places: frozenset[tuple[str, int]]) -> bool:
        """These roles and indices replace members that are still at work: only with the end of those a world is formed.

        So a migration costs one change of the world, not two. A world that is formed for another reason takes them in.
        Returns whether this is news.
        """
        before, self._standing_by = self._standing_by, places
        return before != places

    def leaving(self, uid: str, now: float) -> None:
        """An agent tells that it has to leave, as on SIGTERM."""
        member = self.members.get(uid)
        if member is not None:
            self._drain(member, self.timing.stop, now)

    def excuse(self, seconds: float) -> None:
        """The master itself stood still for so long: nobody is to blame for silence in that time."""
        for member in self.members:
            member.heard_at += seconds
            if member.away_since is not None:
                member.away_since += seconds

    # --- decisions ---------------------------------------------------------------------------------------------------

    def advance(self, now: float) -> list[Command]:
        """Decide everything that the facts allow now, and return what has to be done."""
        self._lose_absent(now)
        self._judge_crashes(now)
        before = None
        while before != (self.phase, self.round):  # at most: training -> reforming -> waiting -> training
            before = (self.phase, self.round)
            self._step(now)
        for member in self.members:
            if member.away_since is None:
                self._tell(member, now)
        out, self._out = self._out, []
        return out

    @property
    def formed(self) -> bool:
        """No world change is going on: the published hosts may change."""
        return self.phase in ("waiting", "finishing") or (self.phase == "training" and self.confirmed_at is not None)

    def in_world(self, uid: str) -> bool:
        """Tell whether a pod belongs to the present world."""
        return uid in self._in_world

    def rank(self, uid: str) -> int:
        """Return the rank of a member of the present world."""
        return self.world.index(uid)

    def restore(self, *, phase: Phase, process_round: int, world: tuple[str, ...], finished: bool, now: float) -> None:
        """Go on where an earlier master stopped; nobody is lost until its agent had time to reconnect."""
        self.phase, self.round = phase, process_round
        self._set_world(world)
        self.formed_at = now if world else None
        self.finished_at = now if finished else None
        self.resume_until = now + self.timing.lost

    def _step(self, now: float) -> None:
        if self.phase == "training":
            self._confirm(now)
            if self.rules.adapts_itself:
                self._extend(now)
            else:
                self._reform_if_needed(now)
        elif self.phase == "reforming":
            if self._broken:
                self._stop_at_once = True
            if not any(m.process_round and m.away_since is None for m in self._world_members()):
                self.phase = "waiting"
        elif self.phase == "finishing":
            self._finish(now)
        if self.phase == "waiting" and self._can_form(now):
            self._form(now)

    def _reform_if_needed(self, now: float) -> None:
        leaving = any(m.draining_since is not None for m in self._world_members())
        if self._broken or leaving or self._uneven or self._joiners_due(now):
            self.phase = "reforming"
            self._stop_at_once = self._broken

    def _joiners_due(self, now: float) -> bool:
        if self.confirmed_at is None or not self._settled(now):
            return False
        return any(
            m.available and m.uid not in self._in_world and (m.identity.role, m.identity.index) not in self._standing_by
            for m in self.members
        )

    def _extend(self, now: float) -> None:
        """Give a framework that adapts itself a new world beside the running one."""
        held = self.confirmed_at is not None and now - (self.formed_at or 0.0) >= self.timing.hold
        present = {m.uid for m in self.members if m.available or (m.uid in self._in_world and not m.leaving)}
        if held and present and present != self._in_world and (present < self._in_world or self._settled(now)):
            self._form(now)

    def _finish(self, now: float) -> None:
        running = [m for m in self._world_members() if m.process_round]
        if not running:
            if self.rules.deciding_role is None:
                self.phase = "waiting"
        elif self._broken and self.finished_at is not None and now - self.finished_at > self.timing.finishing:
            self.phase, self._stop_at_once = "reforming", True

    def _can_form(self, now: float) -> bool:
        if self.sizes is None or (self.finished_at is not None and self.rules.deciding_role is not None):
            return False
        if self.resume_until is not None and now < self.resume_until and self.members.away:
            return False
        present = [m for m in self.members if m.available]
        if not present or any(m.crashed_at is not None for m in present):
            return False
        if not self.rules.adapts_itself and any(m.process_round for m in present):
            return False  # a process of an earlier world is still being stopped
        if self.finished_at is not None:
            return True  # who came too late, or failed beside a finished one, finishes from the last checkpoint
        wait_for_all = self.rules.all_ready and self.round == 0
        enough = all(
            self._count(role) >= (size.desired if wait_for_all else size.minimum) for role, size in self.sizes.items()
        )
        return enough and self._settled(now)

    def _form(self, now: float) -> None:
        """Make the next world: survivors in their order, then the others as they joined."""
        fresh = {m.uid for m in self.members if m.available or (self.rules.adapts_itself and self._keeps(m))}
        survivors = [uid for uid in self.world if uid in fresh]
        joined = [m.uid for m in self.members if m.uid in fresh and m.uid not in self._in_world]
        self._set_world((*survivors, *joined))
        self.round += 1
        self.phase = "training"
        self.formed_at, self.confirmed_at, self._first_join = now, None, None
        self._broken = self._uneven = self._hurt = self._success_in_world = self._stop_at_once = False

    def _keeps(self, member: Member) -> bool:
        return member.uid in self._in_world and not member.leaving

    def _confirm(self, now: float) -> None:
        if self.confirmed_at is None and self.formed_at is not None:
            started = all(m.started or m.crashed_at is not None or m.leaving for m in self._world_members())
            if started or now - self.formed_at > self.timing.start:
                self.confirmed_at = now

    def _settled(self, now: float) -> bool:
        if self._first_join is None:
            return True
        if self.sizes is not None and all(self._count(role) >= size.desired for role, size in self.sizes.items()):
            return True
        quiet = self.timing.settle if self.round else self.timing.settle_first
        return now - self._last_join >= quiet or now - self._first_join >= self.timing.settle_limit

    def _lose_absent(self, now: float) -> None:
        for member in [m for m in map(self.members.get, tuple(self.members.away)) if m is not None]:
            if member.away_since is not None and now - member.away_since > self.timing.lost and not member.succeeded:
                self._lose(member)
        for member in list(self.members):
            silent = member.away_since is None and now - member.heard_at > self.timing.lost
            if (silent and not member.succeeded) or (member.stop_due is not None and now > member.stop_due):
                self._lose(member)
            elif member.exit_due is not None and now > member.exit_due:
                self._process_gone(member)
                self._uneven = True

    def _judge_crashes(self, now: float) -> None:
        crashed = [m for m in self.members if m.crashed_at is not None]
        if not crashed:
            return
        crashed.sort(key=lambda m: m.crashed_at or 0.0)
        hurt = self._hurt or self._success_in_world or any(m.away_since is not None for m in self._world_members())
        if self.rules.adapts_itself:
            culprits = crashed
        elif hurt or self.phase in ("reforming", "waiting"):
            culprits = []
        elif len(self.world) > 1 and now - (crashed[0].crashed_at or 0.0) < self.timing.crash:
            return
        else:
            culprits = crashed[:1]
        for member in crashed:
            member.crashed_at = None
            member.exiting = member in culprits
        self._broken = True

    # --- telling -----------------------------------------------------------------------------------------------------

    def _tell(self, member: Member, now: float) -> None:
        wanted = self._wanted(member, now)
        if wanted is None or wanted == member.told:
            return
        member.told = wanted
        if wanted.command == "start":
            member.process_round, member.started = wanted.round, False
            self._out.append(Start(member.uid, wanted.round))
        elif wanted.command == "stop":
            grace = 0.0 if wanted.at_once else self.timing.stop
            member.stop_due = now + 2 * grace + self.timing.margin
            self._out.append(Stop(member.uid, wanted.round, grace))
        elif wanted.command == "drain":
            member.stop_due = now + 2 * member.drain_seconds + self.timing.margin if member.process_round else None
            # A little less than what the operator waits, so that the agent is the one that ends the process.
            self._out.append(Drain(member.uid, 0.9 * member.drain_seconds))
        else:
            self._out.append(Exit(member.uid))

    def _wanted(self, member: Member, now: float) -> Told | None:
        if member.succeeded or member.exiting:
            return Told("exit")
        if member.draining_since is not None:
            # A process that adapts itself learns from host discovery that it has to go, and is given time to do so.
            by_itself = self.rules.adapts_itself and now - member.draining_since < member.drain_seconds / 2
            return None if by_itself and member.process_round else Told("drain")
        inside = member.uid in self._in_world and self.phase in ("training", "finishing")
        if member.process_round and not self.rules.adapts_itself:
            if self._stopping(member.process_round) or not inside:
                return Told("stop", member.process_round, self._stop_at_once)
        elif inside and self.phase == "training" and not member.process_round and self._may_start(member):
            return Told("start", self.round)
        return member.told if member.process_round else None

    def _may_start(self, member: Member) -> bool:
        return member.crashed_at is None and member.last_round < self.round

    def _stopping(self, process_round: int) -> bool:
        if self.rules.adapts_itself:
            return False
        return process_round != self.round or self.phase in ("reforming", "waiting")

    # --- facts -------------------------------------------------------------------------------------------------------

    def _reconcile(self, member: Member, running_round: int, now: float) -> None:
        """Take the agent's word for what runs there."""
        if running_round > self.round:
            # A world this master has forgotten, so who belongs to it is not known: form the next one in its place.
            self.round, self._uneven = running_round, True
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
        member.last_round = max(member.last_round, member.process_round)
        member.process_round, member.started = 0, False
        member.stop_due = member.exit_due = None
        self._out.append(Release(member.uid))

    def _drain(self, member: Member, seconds: float, now: float) -> None:
        if member.draining_since is None and not member.succeeded:
            member.draining_since, member.drain_seconds = now, seconds
            member.crashed_at = None

    def _lose(self, member: Member) -> None:
        running = bool(member.process_round) or member.crashed_at is not None
        if member.uid in self._in_world and running and not self.rules.adapts_itself:
            self._broken = self._hurt = True
        self.members.remove(member)
        self._out += [Release(member.uid), Removed(member.uid)]

    def _set_world(self, world: tuple[str, ...]) -> None:
        self.world, self._in_world = world, frozenset(world)

    def _world_members(self) -> Iterator[Member]:
        return (m for m in map(self.members.get, self.world) if m is not None)

    def _count(self, role: str) -> int:
        return sum(m.identity.role == role for m in self.members if m.available)
