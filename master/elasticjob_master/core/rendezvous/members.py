"""Who belongs to the job now, and what each member is doing.

A member is one pod's agent. Facts about it change with the agents' messages; every decision is made elsewhere from
these facts alone, so a message that comes late, twice or never changes nothing but the time a decision takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from elasticjob_api.refusals import NotCurrent

from elasticjob_master.core.step_times import StepTimes

MemberState = Literal["waiting", "training", "draining", "suspected", "succeeded"]
UNFINISHED_STAGES = ("waiting", "running", "answered")
"""Stages of a node check in which a member belongs to no world yet."""
MOST_MEMBERS = 20_000
"""Twice as many as a role can have, so that nobody who has the token fills the memory."""


@dataclass(frozen=True)
class Identity:
    """What an agent tells of itself when it registers."""

    pod_name: str
    pod_uid: str
    role: str
    index: int
    incarnation: int = 0
    address: str = ""
    node_name: str = ""
    slots: int = 1


@dataclass(frozen=True)
class Usage:
    """Resources in use by the training process, as last told."""

    cpu_cores: float = 0.0
    memory_bytes: int = 0
    gpu_percent: int = 0
    gpu_memory_bytes: int = 0


@dataclass(frozen=True)
class LastCommand:
    """The last command sent on the present stream; the same command is not sent twice on one stream."""

    command: Literal["start", "stop", "drain", "exit", "check"]
    round: int = 0
    at_once: bool = False


@dataclass(slots=True)
class NodeCheckState:
    """A member's node check, see `nodecheck`; there is none unless the job asks for it.

    Attributes:
        peers: addresses it connects to.
        deadline: when the answer must be there.
        seconds: what the measured work took; 0 when not known.
        problem: what is wrong with the node; empty: nothing.
        unreached: the peers it could not connect to.
    """

    stage: Literal["none", "waiting", "running", "answered", "passed", "failed"] = "none"
    peers: tuple[str, ...] = ()
    deadline: float = 0.0
    seconds: float = 0.0
    problem: str = ""
    unreached: tuple[str, ...] = ()


@dataclass(slots=True)
class Member:
    """One member.

    Attributes:
        order: grows with every registration; the lowest is the longest-serving member.
        disconnected_since: when its stream ended (or was first waited for); None while it is connected.
        process_round: the round of its training process; 0 when none runs or is being started.
        started: the agent has confirmed the start of that process.
        last_round: the last round it has run a process in; no round is started twice on one member.
        stop_due: when a process that was told to stop must have ended; a member beyond it is taken for lost.
        exit_due: until when the exit report of a process that is known to be gone is waited for.
        crashed_at: when its process failed unasked, until it is judged.
        exiting: judged to leave with its process' exit code, or because its node is not fit.
        joined_at: when it last came without belonging to the present world.
        suspected: neither its stream nor a word has been there for a while.
    """

    identity: Identity
    order: int
    disconnected_since: float | None
    process_round: int = 0
    started: bool = False
    last_round: int = 0
    stop_due: float | None = None
    exit_due: float | None = None
    crashed_at: float | None = None
    draining_since: float | None = None
    drain_seconds: float = 0.0
    exiting: bool = False
    succeeded: bool = False
    last_command: LastCommand | None = None
    joined_at: float | None = None
    suspected: bool = False
    node_check: NodeCheckState = field(default_factory=NodeCheckState)
    last_heard_at: float = 0.0
    step: int = 0
    usage: Usage = field(default_factory=Usage)
    step_times: StepTimes = field(default_factory=StepTimes)

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return self.identity.pod_uid

    @property
    def leaving(self) -> bool:
        """It is not part of any world to come."""
        return self.exiting or self.succeeded or self.draining_since is not None

    @property
    def available(self) -> bool:
        """It can be, or is, part of a world."""
        return self.disconnected_since is None and not self.leaving and self.node_check.stage not in UNFINISHED_STAGES

    @property
    def state(self) -> MemberState:
        """What others are told of it."""
        if self.succeeded:
            return "succeeded"
        if self.draining_since is not None or self.exiting:
            return "draining"
        if self.suspected:
            return "suspected"
        return "training" if self.process_round else "waiting"

    def process_ended(self) -> None:
        """Note that its training process has ended."""
        self.last_round = max(self.last_round, self.process_round)
        self.process_round, self.started = 0, False
        self.stop_due = self.exit_due = None

    def drain(self, seconds: float, now: float) -> None:
        """Let it leave; once it leaves, later words change nothing."""
        if self.draining_since is None and not self.succeeded:
            self.draining_since, self.drain_seconds = now, seconds
            self.crashed_at = None


class Members:
    """All members by pod UID, in the order in which they joined."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Member] = {}
        self._by_place: dict[tuple[str, int], str] = {}
        self._next_order = 1
        self.disconnected: set[str] = set()
        """Who has no stream and is waited for; one that has succeeded need not come back."""
        self.removed: list[Member] = []
        """Who was forgotten, until somebody has taken note of it."""

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_uid.values())

    def __len__(self) -> int:
        return len(self._by_uid)

    def get(self, uid: str) -> Member | None:
        """Return a member, or None."""
        return self._by_uid.get(uid)

    def member_at(self, identity: Identity) -> Member | None:
        """Return who has this role and index now."""
        return self._by_uid.get(self._by_place.get((identity.role, identity.index), ""))

    def check_registration(self, identity: Identity) -> None:
        """Raise `NotCurrent` when the role and index belong to a newer pod, or to another that is still connected.

        So does one pod that comes back with another role or index, and one that would be a member too many.
        """
        known = self._by_uid.get(identity.pod_uid)
        if known is None and len(self) >= MOST_MEMBERS:
            raise NotCurrent(f"there are {len(self)} members already; a job can have at most {MOST_MEMBERS}")
        if known is not None and (known.identity.role, known.identity.index) != (identity.role, identity.index):
            raise NotCurrent(
                f"pod UID {identity.pod_uid} is {known.identity.role} {known.identity.index}; it cannot become "
                f"{identity.role} {identity.index}"
            )
        old = self.member_at(identity)
        if old is None or old.uid == identity.pod_uid:
            return
        newer = old.identity.incarnation > identity.incarnation
        if newer or (old.identity.incarnation == identity.incarnation and old.disconnected_since is None):
            raise NotCurrent(
                f"{identity.role} {identity.index} is pod {old.identity.pod_name} (incarnation "
                f"{old.identity.incarnation}); pod {identity.pod_name} ({identity.incarnation}) is not newer"
            )

    def add(self, identity: Identity, now: float) -> Member:
        """Add a member, which is away until it connects; its place must be free."""
        member = Member(identity, self._next_order, disconnected_since=now, last_heard_at=now)
        self.insert(member)
        return member

    def insert(self, member: Member) -> None:
        """Take a member as it is, as after a restart of the master."""
        self._next_order = max(self._next_order, member.order + 1)
        self._by_uid[member.uid] = member
        self._by_place[member.identity.role, member.identity.index] = member.uid
        self.set_disconnected(member, member.disconnected_since)

    def remove(self, member: Member) -> None:
        """Forget a member."""
        if self._by_uid.pop(member.uid, None) is not None:
            self.removed.append(member)
        self.disconnected.discard(member.uid)
        place = (member.identity.role, member.identity.index)
        if self._by_place.get(place) == member.uid:
            del self._by_place[place]

    def set_disconnected(self, member: Member, since: float | None) -> None:
        """Note that the member's stream ended, or that it has one."""
        member.disconnected_since = since
        if since is None or member.succeeded:
            self.disconnected.discard(member.uid)
        else:
            self.disconnected.add(member.uid)
