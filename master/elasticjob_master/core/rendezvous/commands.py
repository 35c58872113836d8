"""What the rendezvous wants done: values, carried out by the shell in the order in which they come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Start:
    """Start the member's training process in the present world."""

    uid: str
    round: int


@dataclass(frozen=True)
class Stop:
    """Stop the member's training process of a round; 0 seconds of grace: at once."""

    uid: str
    round: int
    grace_seconds: float


@dataclass(frozen=True)
class Drain:
    """Stop the member's training process and end its agent."""

    uid: str
    grace_seconds: float


@dataclass(frozen=True)
class Exit:
    """End the agent with its process' exit code, or because its node is not fit: then the problem says why."""

    uid: str
    problem: str = ""


@dataclass(frozen=True)
class Check:
    """Measure the member's node: connect to peers, and run the job's command, if any."""

    uid: str
    number: int
    peers: tuple[str, ...]
    command: tuple[str, ...]
    timeout_seconds: float


@dataclass(frozen=True)
class Configure:
    """Tell this often from now on."""

    uid: str
    heartbeat_seconds: float
    report_seconds: float


@dataclass(frozen=True)
class ReleaseLeases:
    """The member's training process is gone: whatever was leased to it is free again."""

    uid: str


@dataclass(frozen=True)
class MemberRemoved:
    """The member is forgotten; its stream, if any, is closed and it may register again."""

    uid: str


Command = Start | Stop | Drain | Exit | Check | Configure | ReleaseLeases | MemberRemoved
