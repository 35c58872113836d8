"""The members of the job, and what each of them is doing.

A member is one desired role and index, and the pod that fills it. Only `advance` changes
the facts that are recorded here. The one exception is the mark of a straggler in `step_times`,
which no decision of the rendezvous reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from elasticjob_api.frameworks import Peer
from elasticjob_api.pod_identity import MemberKey
from elasticjob_api.refusals import NotCurrent

from elasticjob_master.core.step_times import StepTimes

Renewal = Literal["", "asked", "at_once"]
Left = Literal["", "waits", "ends"]
MemberState = Literal["waiting", "training", "draining", "suspected", "succeeded"]
UNFINISHED_STAGES = ("waiting", "running", "answered")
"""Stages of an undecided node check. A member in one of them cannot join a world."""
MOST_MEMBERS = 20_000
"""Twice the largest size of a role. It bounds the memory that a client with the token can fill."""


@dataclass(frozen=True)
class Identity:
    """The pod of an agent, as the agent registers it."""

    pod_name: str
    pod_uid: str
    role: str
    index: int
    incarnation: int = 0
    address: str = ""
    node_name: str = ""
    slots: int = 1

    @property
    def key(self) -> MemberKey:
        """Its role and index."""
        return self.role, self.index

    @property
    def peer(self) -> Peer:
        """The pod in the form that the frameworks' environments are made from."""
        return Peer(self.pod_name, self.role, self.index, self.address, self.slots)


@dataclass(frozen=True)
class Usage:
    """Resources that the training process uses, and the cores of its node, as last reported."""

    cpu_cores: float = 0.0
    memory_bytes: int = 0
    gpu_percent: int = 0
    gpu_memory_bytes: int = 0
    node_cores: int = 0


@dataclass(frozen=True)
class Link:
    """A connection to a peer, as an agent has measured it: of several tries the best."""

    round_trip_seconds: float
    bytes_per_second: float


@dataclass(frozen=True)
class MemberCommand:
    """The last command sent on the present stream. The same command is not sent twice on a stream.

    Attributes:
        round: the round of the process to start or stop, or of the announced world. For a node
            check it is the number of the check.
        at_once: a stop without grace period.
    """

    command: Literal["start", "stop", "drain", "exit", "check", "hosts_updated", "world_changed"]
    round: int = 0
    at_once: bool = False


@dataclass(slots=True)
class NodeCheckState:
    """The state of a member's node check. See `node_check`.

    Attributes:
        stage: "none" if the job wants no check. Otherwise "waiting" for its group, "running",
            "answered" by the agent, and finally "passed" or "failed".
        peers: the addresses that the agent connects to.
        deadline: when the answer must have arrived.
        seconds: the duration of the measured work; 0 when not known.
        problem: the defect of the node; empty: none.
        unreached: the peers that the agent could not connect to.
        links: the measured connections, by peer.
        device: what has computed the matrix product; empty: nothing.
        device_seconds: the duration of that product.
    """

    stage: Literal["none", "waiting", "running", "answered", "passed", "failed"] = "none"
    peers: tuple[str, ...] = ()
    deadline: float = 0.0
    seconds: float = 0.0
    problem: str = ""
    unreached: tuple[str, ...] = ()
    links: Mapping[str, Link] = field(default_factory=dict)
    device: str = ""
    device_seconds: float = 0.0


@dataclass(slots=True)
class Member:
    """One member. Times are those of the rendezvous' clock.

    Attributes:
        order: grows with every registration. The lowest is the longest-serving member.
        disconnected_since: when its stream ended, or when it registered without one. None while it
            is connected.
        process_round: the round of its training process; 0: none runs or is being started.
        started: the agent has confirmed the start of that process.
        joined_round: the round of the latest world in which its process has its place. In Horovod
            jobs 0 means that the process does not have the state of the training. In a notified
            role only worlds after the process' start count.
        joining: its Horovod process waits for its place in a later world.
        left: its process has left the present world and still runs: it "waits" for the next one, as
            a collective has broken, or it "ends" and has reported all that it has trained.
        take_world_due: when its process, in a notified role, must have taken the present world.
            None if it has.
        renewal: its process, in a notified role, is to be restarted: it is asked to stop, or killed
            at once.
        last_round: the last round in which it has run a process. No round is started twice on one
            member.
        stop_due: when a process that is being stopped must have ended. Afterwards the member counts
            as lost.
        exit_due: when to stop waiting for the exit report of a process that is known to have ended.
        crashed_at: when the crash of its process was reported. None once it is decided which member
            was at fault.
        failed_at: when the first of its processes failed then, by its agent's clock.
        node_problem: why its node is broken, as reported with that crash.
        killed: that process was ended by SIGKILL, which no failure of another member causes.
        retry: its agent may start that process again in the next world, even if it was at fault.
        ends_job: nothing restarts its pod after that crash if it was at fault: the job ends.
        crash_excused: another member's failure caused that crash. The next Start says so.
        draining_since: when it was asked to leave.
        drain_seconds: how long its process may take for that.
        exiting: it has to leave with its process' exit code, or because its node check has failed.
        succeeded: its process has finished with exit code 0.
        last_command: the last command on its present stream, if any.
        joined_at: when it last connected without belonging to the present world.
        suspected: it has been disconnected or silent for a while. See `failure_detection`.
        watches: its agent can watch and probe other members.
        watched: the addresses that it was last told to watch on its present stream, if it was.
        last_heard_at: when its last message arrived.
        step: the last step that it reported.
        restarts: the restarts of its crashed process in this pod, as its agent reported last.
        standby: the number of its processes in standby, and why there are none, as reported last.
    """

    identity: Identity
    order: int
    disconnected_since: float | None
    process_round: int = 0
    started: bool = False
    joined_round: int = 0
    joining: bool = False
    left: Left = ""
    take_world_due: float | None = None
    renewal: Renewal = ""
    last_round: int = 0
    stop_due: float | None = None
    exit_due: float | None = None
    crashed_at: float | None = None
    failed_at: float = 0.0
    node_problem: str = ""
    killed: bool = False
    retry: bool = False
    ends_job: bool = False
    crash_excused: bool = False
    draining_since: float | None = None
    drain_seconds: float = 0.0
    exiting: bool = False
    succeeded: bool = False
    last_command: MemberCommand | None = None
    joined_at: float | None = None
    suspected: bool = False
    watches: bool = False
    watched: tuple[str, ...] | None = None
    node_check: NodeCheckState = field(default_factory=NodeCheckState)
    last_heard_at: float = 0.0
    step: int = 0
    restarts: int = 0
    standby: tuple[int, str] = (0, "")
    usage: Usage = field(default_factory=Usage)
    step_times: StepTimes = field(default_factory=StepTimes)

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return self.identity.pod_uid

    @property
    def leaving(self) -> bool:
        """Whether it leaves the job: no later world contains it."""
        return self.exiting or self.succeeded or self.draining_since is not None

    @property
    def available(self) -> bool:
        """Whether it can be part of a world."""
        return (
            self.disconnected_since is None
            and not self.leaving
            and self.node_check.stage not in UNFINISHED_STAGES
        )

    @property
    def taken_round(self) -> int:
        """The round of the latest world that its process has taken; 0: none runs."""
        return max(self.process_round, self.joined_round) if self.process_round else 0

    @property
    def state(self) -> MemberState:
        """The state shown to users."""
        if self.succeeded:
            return "succeeded"
        if self.draining_since is not None or self.exiting:
            return "draining"
        if self.suspected:
            return "suspected"
        return "training" if self.process_round else "waiting"

    def process_ended(self) -> None:
        """Record that its training process has ended."""
        self.last_round = max(self.last_round, self.process_round)
        self.process_round = 0
        self.started = False
        self.joined_round = 0
        self.joining = False
        self.left = ""
        self.stop_due = None
        self.exit_due = None
        self.take_world_due = None
        self.renewal = ""

    def drain(self, seconds: float, now: float) -> None:
        """Ask it to leave within this time, unless it leaves already or has succeeded."""
        if self.draining_since is None and not self.succeeded:
            self.draining_since = now
            self.drain_seconds = seconds
            self.crashed_at = None


class Members:
    """All members by pod UID, in the order in which they registered."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Member] = {}
        self._by_key: dict[MemberKey, str] = {}
        self._next_order = 1
        self.disconnected: set[str] = set()
        """UIDs of members without a stream that should reconnect: all that have not succeeded."""
        self.awaited: set[str] = set()
        """UIDs of members that may run a process of an earlier master and have not reconnected."""

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_uid.values())

    def __len__(self) -> int:
        return len(self._by_uid)

    def get(self, uid: str) -> Member | None:
        """Return a member, or None."""
        return self._by_uid.get(uid)

    def member_at(self, identity: Identity) -> Member | None:
        """Return the member that has this role and index, or None."""
        return self._by_uid.get(self._by_key.get(identity.key, ""))

    def check_registration(self, identity: Identity) -> None:
        """Check that a pod may register.

        Raises:
            NotCurrent: its role and index belong to a newer pod, or to another pod that is
                connected. Or it was registered with another role or index. Or there are too many
                members.
        """
        known = self._by_uid.get(identity.pod_uid)
        if known is None and len(self) >= MOST_MEMBERS:
            raise NotCurrent(
                f"there are {len(self)} members already; a job can have at most {MOST_MEMBERS}"
            )
        place = f"{identity.role} {identity.index}"
        if known is not None and known.identity.key != identity.key:
            before = f"{known.identity.role} {known.identity.index}"
            raise NotCurrent(f"pod UID {identity.pod_uid} is {before}; it cannot become {place}")
        present = self.member_at(identity)
        if present is None or present.uid == identity.pod_uid:
            return
        newer = identity.incarnation - present.identity.incarnation
        if newer < 0 or (newer == 0 and present.disconnected_since is None):
            pod = f"{present.identity.pod_name} (incarnation {present.identity.incarnation})"
            raise NotCurrent(
                f"{place} is pod {pod}; "
                f"pod {identity.pod_name} ({identity.incarnation}) is not newer"
            )

    def add(self, identity: Identity, now: float) -> Member:
        """Add a disconnected member. Its role and index must be free."""
        member = Member(identity, self._next_order, disconnected_since=now, last_heard_at=now)
        self.insert(member)
        return member

    def insert(self, member: Member) -> None:
        """Insert a member as it is."""
        self._next_order = max(self._next_order, member.order + 1)
        self._by_uid[member.uid] = member
        self._by_key[member.identity.key] = member.uid
        self.set_disconnected(member, member.disconnected_since)

    def restore(self, member: Member, *, in_world: bool) -> None:
        """Insert a member that an earlier master has stored.

        A world is stored before its processes start, and their rounds afterwards. So a member of
        the stored world may run a process although no round is stored for it.
        """
        self.insert(member)
        if member.process_round or (in_world and not member.succeeded):
            self.awaited.add(member.uid)

    def remove(self, member: Member) -> None:
        """Remove a member."""
        self._by_uid.pop(member.uid, None)
        self.disconnected.discard(member.uid)
        self.awaited.discard(member.uid)
        if self._by_key.get(member.identity.key) == member.uid:
            del self._by_key[member.identity.key]

    def set_disconnected(self, member: Member, since: float | None) -> None:
        """Record since when a member has had no stream; None if it has one."""
        member.disconnected_since = since
        if since is None or member.succeeded:
            self.disconnected.discard(member.uid)
        else:
            self.disconnected.add(member.uid)
