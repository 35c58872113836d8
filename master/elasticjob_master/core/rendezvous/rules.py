"""What worlds are made by: the times, the sizes and the rules that a job and its framework set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Phase = Literal["waiting", "training", "reforming", "finishing"]


@dataclass(frozen=True)
class Timing:
    """Seconds, where nothing else is said.

    Attributes:
        lost: without a stream until a member is taken for lost; from a third of it on it is suspected.
        silent_factor: how many times as long a member may be silent whose stream is open. Its agent's connection
            answers, so its node is there: more likely it is short of CPU than gone. A hung agent is still bounded.
        settle: after a join, in which others may join the same world; nobody waits once all desired members are there.
        settle_first: the same before the first world, when pods of one job start at different speeds.
        settle_limit: the longest a world waits for joins that keep coming.
        fault_window: after a failure, in which the loss of another member may turn out to be its cause.
        start: until a world counts as formed although not every member has confirmed its start.
        stop: grace of a stop, unless the job says otherwise.
        stop_margin: beyond the grace until a member that does not stop is taken for lost.
        exit_report: for the report of a process that ended while its agent was not connected.
        finishing: that members left over by a finished world have to end by themselves.
        world_interval: between two changes of an in-process elastic world, which loses a change made during another.
    """

    lost: float = 30.0
    silent_factor: float = 3.0
    settle: float = 1.0
    settle_first: float = 2.0
    settle_limit: float = 5.0
    fault_window: float = 2.0
    start: float = 30.0
    stop: float = 30.0
    stop_margin: float = 10.0
    exit_report: float = 5.0
    finishing: float = 60.0
    world_interval: float = 6.0


@dataclass(frozen=True)
class RoleSize:
    """Fewest members with which a role can train, and how many it shall have."""

    minimum: int
    desired: int


@dataclass(frozen=True)
class Rules:
    """What the framework and the job's policy decide about worlds."""

    in_process_elastic: bool = False
    deciding_role: str | None = None
    all_ready: bool = False
