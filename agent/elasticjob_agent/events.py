"""The events in the life of a member's training, and the actions that they cause.

A member has one training process or several, which start and end together: "the process" stands for
all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Launch:
    """Event and action: start the training process in the world of a round.

    Attributes:
        round: the number of the world.
        variables: the variables that the agent sets in each process, by rank.
        first_rank: the rank of the first one.
        world: the world as the master has sent it.
        restart_in_place: a crashed process may be restarted in this world. It may not beside other
            processes: they know its addresses, have passed barriers with it, and are ahead of the
            checkpoint that it would load.
        crash_excused: another member's crash caused the last crash, so it does not count.
    """

    round: int
    variables: Sequence[Mapping[str, str]] = ()
    first_rank: int = 0
    world: Any = None
    restart_in_place: bool = True
    crash_excused: bool = False


@dataclass(frozen=True)
class Exited:
    """How a training process ended.

    Attributes:
        round: the world that it was started in.
        code: its exit code, as a shell reports it.
        asked: it ended because of a stop, not because the training is finished.
        message: its last words.
        retry: it has crashed and may be restarted in another world.
        failed_at: when the first of the member's processes failed, by the agent's monotonic clock;
            None if none has failed.
        node_problem: why its node is broken; empty if nothing says so.
    """

    round: int
    code: int
    asked: bool
    message: str
    retry: bool = False
    failed_at: float | None = None
    node_problem: str = ""


@dataclass(frozen=True)
class StopRequested:
    """The master ends the process of a round; the next Launch follows."""

    round: int
    grace: float


@dataclass(frozen=True)
class WorldChanged:
    """The process continues in another world than that of its start."""


@dataclass(frozen=True)
class DrainRequested:
    """The member leaves: the master has sent a drain command, or the node SIGTERM."""

    grace: float
    by_node: bool = False


@dataclass(frozen=True)
class ExitRequested:
    """The agent ends with its process' exit code, or because its node has a problem."""

    problem: str = ""


@dataclass(frozen=True)
class ProcessFailed:
    """One of the member's training processes has failed while others run.

    `confirmed`: one of the processes has confirmed a stop.
    """

    confirmed: bool = False


@dataclass(frozen=True)
class ProcessEnded:
    """The member's training processes and all their descendants have exited; see `Exited`.

    Attributes:
        code: 0 if all have exited with 0; otherwise that of the first one that failed.
        message: the last words of the process with that code.
        confirmed: one of them has confirmed a stop, which counts for all. If the training was in
            fact finished, it is restarted and finds that out; the other mistake would lose it.
    """

    code: int
    message: str
    confirmed: bool = False
    failed_at: float | None = None
    node_problem: str = ""


@dataclass(frozen=True)
class VerdictTimedOut:
    """The master has not decided in time what follows after a process that ended by itself."""


Event = (
    Launch
    | StopRequested
    | WorldChanged
    | DrainRequested
    | ExitRequested
    | ProcessFailed
    | ProcessEnded
    | VerdictTimedOut
)


@dataclass(frozen=True)
class EndProcess:
    """End the process: ask it to stop, then send SIGTERM, then SIGKILL.

    Attributes:
        terminate_after: seconds until SIGTERM; earlier if the process cannot be asked.
        kill_after: seconds until SIGKILL; 0 kills it at once, without asking.
        by_node: the node has requested it. The master and the other members do not know of it yet.
    """

    terminate_after: float
    kill_after: float
    by_node: bool = False


KILL_NOW = EndProcess(terminate_after=0.0, kill_after=0.0)


@dataclass(frozen=True)
class ReportLeaving:
    """Report to the master that the node ends this pod."""


@dataclass(frozen=True)
class AwaitVerdict:
    """Raise VerdictTimedOut if the master sends no command, or stays disconnected, for too long."""


@dataclass(frozen=True)
class Quit:
    """End the agent."""

    code: int


Action = Launch | Exited | EndProcess | ReportLeaving | AwaitVerdict | Quit
