"""The commands that the rendezvous returns; the controller executes them in their order."""

from __future__ import annotations

from dataclasses import dataclass

from elasticjob_master.core.rendezvous.members import Member


@dataclass(frozen=True)
class Start:
    """Start the member's training process in the world of a round.

    `crash_excused`: its last crash was the consequence of another member's. `goes_on`: also when
    the world changes.
    """

    uid: str
    round: int
    crash_excused: bool = False
    goes_on: bool = False


@dataclass(frozen=True)
class Stop:
    """Stop the member's training process of a round; 0 seconds of grace kill it at once."""

    uid: str
    round: int
    grace_seconds: float
    reason: str = ""
    """Why this process alone is stopped and started again, if so."""


@dataclass(frozen=True)
class Drain:
    """Stop the member's training process and end its agent."""

    uid: str
    grace_seconds: float


@dataclass(frozen=True)
class Exit:
    """End the agent with its process' exit code, or because of a `problem` that the node check has found."""

    uid: str
    problem: str = ""


@dataclass(frozen=True)
class Check:
    """Check the member's node.

    Connect to the peers, measure some work, and run the job's command, if any.
    """

    uid: str
    number: int
    peers: tuple[str, ...]
    command: tuple[str, ...]
    timeout_seconds: float


@dataclass(frozen=True)
class Configure:
    """Send heartbeats and step reports at these intervals from now on."""

    uid: str
    heartbeat_seconds: float
    report_seconds: float


@dataclass(frozen=True)
class HostsUpdated:
    """Have the member's process, which goes on from world to world, ask for its place in the world of a round."""

    uid: str
    round: int


@dataclass(frozen=True)
class WorldChanged:
    """Tell the member's process, which goes on from world to world, the world of a round."""

    uid: str
    round: int


@dataclass(frozen=True)
class RunScript:
    """Run the script of a plan, which has an id of its own, unless it was run already.

    And tell its end.
    `pods`: those that leave or have come, as `pod:slots` with commas between.
    """

    uid: str
    id: str
    script: str
    environment: tuple[tuple[str, str], ...]
    pods: str
    timeout_seconds: float


@dataclass(frozen=True)
class ReleaseLeases:
    """The member's training process has ended: return the shards that are leased to it."""

    uid: str


@dataclass(frozen=True)
class MemberRemoved:
    """The member has been removed: close its stream, if any; its pod may register again."""

    uid: str
    member: Member


@dataclass(frozen=True)
class CloseStream:
    """Close the member's stream, which a newer one has replaced."""

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
    | ReleaseLeases
    | MemberRemoved
    | CloseStream
)
