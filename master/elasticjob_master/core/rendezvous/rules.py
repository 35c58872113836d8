"""The settings of the rendezvous.

Timeouts, the roles' sizes, and rules of the job's framework and policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from elasticjob_api.limits import MASTER_FENCE_SECONDS

Phase = Literal["waiting", "training", "reforming", "finishing"]


@dataclass(frozen=True)
class Timing:
    """Timeouts, in seconds unless stated otherwise.

    Attributes:
        lost: how long a member may be disconnected until it counts as lost; it is suspected after a third of that.
        silent_factor: how many times longer a connected member may be silent. Its connection is alive, so its node is
            probably short of CPU rather than down. The factor also bounds how long a hung agent is kept.
        settle: the join window: how long a new world waits after a join for further ones. It does not wait once all
            desired members are there.
        settle_anew: the join window of a job that begins, also again: all of its pods are new and start at
            different speeds.
        settle_limit: the longest a new world waits when joins keep coming.
        fault_window: how long after a failure the loss of another member may still turn out to be its cause.
        start: when a world counts as confirmed although some members have not confirmed the start of their processes.
        stop: the grace period of a stop; the job's spec replaces it.
        stop_margin: how long after its grace period a member that has not stopped counts as lost.
        exit_report: how long to wait for the exit report of a process that ended while its agent was disconnected.
        finishing: how long the other members of a finished world may take to end by themselves.
        world_interval: the least time between two worlds of an in-process elastic framework, which may miss a change
            of its hosts that is made while it still handles the one before.
        fence: how long after the last successful write of a shared state a world may be started; see
            `RendezvousState.may_start`.
    """

    lost: float = 30.0
    silent_factor: float = 3.0
    settle: float = 1.0
    settle_anew: float = 2.0
    settle_limit: float = 5.0
    fault_window: float = 2.0
    start: float = 30.0
    stop: float = 30.0
    stop_margin: float = 10.0
    exit_report: float = 5.0
    finishing: float = 60.0
    world_interval: float = 6.0
    fence: float = MASTER_FENCE_SECONDS


@dataclass(frozen=True)
class RoleSize:
    """The least number of members with which a role can train, and the desired number.

    Attributes:
        minimum: the least number.
        desired: the desired number.
        kept: its processes go on when the world changes, with the round in which they were started.
        notified: its processes go on when the world changes, and are told the new one.
    """

    minimum: int
    desired: int
    kept: bool = False
    notified: bool = False


@dataclass(frozen=True)
class Rules:
    """Rules for worlds.

    Attributes:
        in_process_elastic: the training process itself follows world changes; the agent does not restart it.
        elastic_driver: the master plays Horovod's elastic driver, see `elastic_driver`.
        deciding_role: the role whose success finishes the job; None: any role's.
        stop_order: roles that are stopped one after the other: who saves something, before those that hold it.
        all_ready: the first world needs all desired members, not only the least number.
    """

    in_process_elastic: bool = False
    elastic_driver: bool = False
    deciding_role: str | None = None
    stop_order: tuple[str, ...] = ()
    all_ready: bool = False
