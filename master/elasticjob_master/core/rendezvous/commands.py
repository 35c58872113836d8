"""The commands that the rendezvous returns. The controller executes them in their order."""

from __future__ import annotations

from dataclasses import dataclass

from elasticjob_master.core.rendezvous.members import Member


@dataclass(frozen=True)
class Start:
    """Start the member's training process in the world of a round.

    Attributes:
        crash_excused: the crash of another member caused the last crash of this one.
        continues: the process continues when the world changes.
    """

    uid: str
    round: int
    crash_excused: bool = False
    continues: bool = False


@dataclass(frozen=True)
class Stop:
    """Stop the member's training process of a round.

    Attributes:
        grace_seconds: 0: kill the process at once.
        reason: why this process alone is restarted, if it is.
    """

    uid: str
    round: int
    grace_seconds: float
    reason: str = ""


@dataclass(frozen=True)
class Drain:
    """Stop the member's training process and end its agent."""

    uid: str
    grace_seconds: float


@dataclass(frozen=True)
class Exit:
    """End the agent with its process' exit code, or because of a `problem` of its node."""

    uid: str
    problem: str = ""


@dataclass(frozen=True)
class Check:
    """Check the member's node: connect to the peers, measure work, and run the job's command."""

    uid: str
    number: int
    peers: tuple[str, ...]
    command: tuple[str, ...]
    timeout_seconds: float


@dataclass(frozen=True)
class Configure:
    """Have the agent send heartbeats and step reports at these intervals."""

    uid: str
    heartbeat_seconds: float
    report_seconds: float


@dataclass(frozen=True)
class HostsUpdated:
    """Announce the world of a round to a Horovod process, which then asks for its place in it."""

    uid: str
    round: int


@dataclass(frozen=True)
class WorldChanged:
    """Send the world of a round to a process in a notified role."""

    uid: str
    round: int


@dataclass(frozen=True)
class RunScript:
    """Run the script of a ScalePlan unless the agent has run it already, and report its end.

    Attributes:
        id: identifies the script.
        pods: the pods that leave or have joined, as `pod:slots`, separated by commas.
    """

    uid: str
    id: str
    script: str
    environment: tuple[tuple[str, str], ...]
    pods: str
    timeout_seconds: float


@dataclass(frozen=True)
class CollectStacks:
    """Return the stacks of the member's training processes, which may be paused for a moment."""

    uid: str
    number: int
    may_pause: bool


@dataclass(frozen=True)
class Watch:
    """Watch whether the nodes of these addresses answer, and no others."""

    uid: str
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class Probe:
    """Find out now whether the nodes of these addresses answer."""

    uid: str
    number: int
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReleaseLeases:
    """Return the shards that are leased to the member, whose training process has ended."""

    uid: str


@dataclass(frozen=True)
class MemberRemoved:
    """Close the stream of a removed member, if it has one. Its pod may register again."""

    uid: str
    member: Member


@dataclass(frozen=True)
class CloseStream:
    """Close a stream that a newer stream of the same member has replaced."""

    uid: str


Command = (
    Start
    | Stop
    | Drain
    | Exit
    | Check
    | Configure
    | HostsUpdated
    | WorldChanged
    | RunScript
    | CollectStacks
    | Watch
    | Probe
    | ReleaseLeases
    | MemberRemoved
    | CloseStream
)
