"""Who belongs to the job now, and what each member is doing.

A member is one pod's agent. Facts about it change with the agents' messages; every decision is made elsewhere from
these facts alone, so a message that comes late, twice or never changes nothing but the time a decision takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

State = Literal["waiting", "training", "draining", "suspected", "succeeded"]


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
class Told:
    """The last command sent on the present stream; the same command is not sent twice on one stream."""

    command: Literal["start", "stop", "drain", "exit"]
    round: int = 0
    at_once: bool = False


@dataclass(slots=True)
class Member:
    """One member.

    Attributes:
        order: grows with every registration; the lowest is the longest-serving member.
        away_since: when its stream ended (or was first waited for); None while it is connected.
        process_round: the round of its training process; 0 when none runs or is being started.
        started: the agent has confirmed the start of that process.
        last_round: the last round it has run a process in; no round is started twice on one member.
        stop_due: when a process that was told to stop must have ended; a member beyond it is taken for lost.
        exit_due: until when the exit report of a process that is known to be gone is waited for.
        crashed_at: when its process failed unasked, until it is judged.
        exiting: judged to leave with its process' exit code.
    """

    identity: Identity
    order: int
    away_since: float | None
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
    told: Told | None = None
    heard_at: float = 0.0
    step: int = 0
    usage: Usage = field(default_factory=Usage)

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
        return self.away_since is None and not self.leaving

    @property
    def state(self) -> State:
        """What others are told of it."""
        if self.succeeded:
            return "succeeded"
        if self.draining_since is not None or self.exiting:
            return "draining"
        if self.away_since is not None:
            return "suspected"
        return "training" if self.process_round else "waiting"


class Refusal(Exception):
    """A registration that cannot be accepted; the message says why."""


class Members:
    """All members by pod UID, in the order in which they joined."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Member] = {}
        self._by_place: dict[tuple[str, int], str] = {}
        self._next_order = 1
        self.away: set[str] = set()

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_uid.values())

    def __len__(self) -> int:
        return len(self._by_uid)

    def get(self, uid: str) -> Member | None:
        """Return a member, or None."""
        return self._by_uid.get(uid)

    def named(self, pod_name: str) -> Member | None:
        """Return the member whose pod has this name, or None."""
        return next((member for member in self if member.identity.pod_name == pod_name), None)

    def holder(self, identity: Identity) -> Member | None:
        """Return who has this role and index now."""
        return self._by_uid.get(self._by_place.get((identity.role, identity.index), ""))

    def check(self, identity: Identity) -> None:
        """Raise `Refusal` when the role and index belong to a newer pod, or to another that is still connected."""
        old = self.holder(identity)
        if old is None or old.uid == identity.pod_uid:
            return
        newer = old.identity.incarnation > identity.incarnation
        if newer or (old.identity.incarnation == identity.incarnation and old.away_since is None):
            raise Refusal(
                f"{identity.role} {identity.index} is pod {old.identity.pod_name} (incarnation "
                f"{old.identity.incarnation}); pod {identity.pod_name} ({identity.incarnation}) is not newer"
            )

    def add(self, identity: Identity, now: float) -> Member:
        """Add a member, which is away until it connects; its place must be free."""
        member = Member(identity, self._next_order, away_since=now, heard_at=now)
        self.put(member)
        return member

    def put(self, member: Member) -> None:
        """Take a member as it is, as after a restart of the master."""
        self._next_order = max(self._next_order, member.order + 1)
        self._by_uid[member.uid] = member
        self._by_place[member.identity.role, member.identity.index] = member.uid
        if member.away_since is not None:
            self.away.add(member.uid)

    def remove(self, member: Member) -> None:
        """Forget a member."""
        self._by_uid.pop(member.uid, None)
        self.away.discard(member.uid)
        place = (member.identity.role, member.identity.index)
        if self._by_place.get(place) == member.uid:
            del self._by_place[place]

    def set_away(self, member: Member, since: float | None) -> None:
        """Note that the member's stream ended, or that it has one."""
        member.away_since = since
        if since is None:
            self.away.discard(member.uid)
        else:
            self.away.add(member.uid)
