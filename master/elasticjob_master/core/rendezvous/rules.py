"""The settings of the rendezvous: timeouts, the roles' sizes, the rules of the framework."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Literal

from elasticjob_api.elasticjob import FailureAction
from elasticjob_api.limits import MASTER_FENCE_SECONDS

ALL_INDICES = range(2**31)
Phase = Literal["waiting", "training", "reforming", "finishing"]


@dataclass(frozen=True)
class Timing:
    """Timeouts, in seconds unless stated otherwise.

    Attributes:
        lost: a member counts as lost when it has been disconnected for this time.
        silent_factor: multiplies `lost` for a member that is connected and silent. Its connection
            is alive, so its node is probably short of CPU rather than down. The factor also bounds
            how long a hung agent stays a member.
        settle: the join window: after a join a new world waits this long for further joins. If all
            desired members have joined, it does not wait.
        settle_at_start: the join window of a job that starts or restarts with new pods. These start
            at different speeds.
        settle_limit: the longest wait for joins that keep coming.
        fault_window: after a failure the loss of another member may turn out to be its cause for
            this time, unless the processes of all members have ended or left the world.
        fault_limit: the most of it, for failures that are reported late.
        proven_window: the same time after a failure that no other member can have caused. Members
            that are lost together then cost one new world.
        start: a world counts as confirmed after this time although some members have not confirmed
            the start of their processes.
        stop: the grace period of a stop. The job's spec sets it.
        stop_margin: a member that has not stopped this time after its grace period counts as lost.
        exit_report: the wait for the exit report of a process that ended while its agent was
            disconnected.
        finishing: the time that the other members of a finished world may take to end.
        world_interval: the least time between two worlds of an in-process elastic framework. It may
            miss a change of its hosts while it still handles the last one.
        job_end: after a failure that ends the job, the others are not started again for this time.
            If the job has not ended then, for example because no operator runs, they are.
        fence: a world of a shared state may be started within this time after the state was
            written. See `RendezvousState.may_start`.
    """

    lost: float = 30.0
    silent_factor: float = 3.0
    settle: float = 1.0
    settle_at_start: float = 2.0
    settle_limit: float = 5.0
    fault_window: float = 0.5
    fault_limit: float = 2.0
    proven_window: float = 0.3
    start: float = 30.0
    stop: float = 30.0
    stop_margin: float = 10.0
    exit_report: float = 5.0
    finishing: float = 60.0
    world_interval: float = 6.0
    job_end: float = 15.0
    fence: float = MASTER_FENCE_SECONDS

    @property
    def suspected(self) -> float:
        """The time after which a member that is disconnected or silent is suspected."""
        return self.lost / 3


@dataclass(frozen=True)
class RoleSize:
    """The number of members of a role.

    Attributes:
        minimum: the least number with which the role can train.
        desired: the number that the operator maintains.
        kept: its processes continue when the world changes and are not notified of it.
        notified: its processes continue when the world changes and are notified of the new one.
        without_restarts: the indices of members whose next failure ends the job.
        actions: what follows a failure by its exit code, where the role's own rules say it.
    """

    minimum: int
    desired: int
    kept: bool = False
    notified: bool = False
    without_restarts: Container[int] = frozenset()
    actions: Mapping[int, FailureAction] = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    """Rules for worlds.

    Attributes:
        in_process_elastic: the training process itself follows changes of the world, and the agent
            does not restart it.
        elastic_driver: the master acts as Horovod's elastic driver. See `elastic_driver`.
        deciding_role: the role whose success finishes the job; None if any role's does.
        stop_order: roles that are stopped one after the other. A role that saves state comes before
            the roles that hold it.
        all_ready: the first world needs all desired members.
    """

    in_process_elastic: bool = False
    elastic_driver: bool = False
    deciding_role: str | None = None
    stop_order: tuple[str, ...] = ()
    all_ready: bool = False
