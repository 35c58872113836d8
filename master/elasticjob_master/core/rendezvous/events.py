"""The events of the rendezvous, by their source: the agents, the operator, and the master itself.

An event is a fact and does not say what follows from it. A repeated report changes nothing.
An event of a pod that is not a member is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob_api.health import NodeCheck
from elasticjob_api.pod_identity import MemberKey
from elasticjob_api.step_report import StepReport

from elasticjob_master.core.rendezvous.members import Identity, Link, Member, Usage
from elasticjob_master.core.rendezvous.rules import Phase, RoleSize, Rules, Timing

# --- from the agents


@dataclass(frozen=True)
class MemberRegistered:
    """A pod's agent has registered. `Members.check_registration` has accepted it."""

    identity: Identity


@dataclass(frozen=True)
class MemberConnected:
    """A member has opened a stream, and reports what runs there.

    Attributes:
        running_round: the round of the process that runs there; 0: none runs.
        joined_round: the latest world after its start in which that process has its place.
        draining: the agent has been asked to end, as by SIGTERM.
    """

    uid: str
    running_round: int = 0
    joined_round: int = 0
    draining: bool = False


@dataclass(frozen=True)
class MemberDisconnected:
    """A member's stream has ended."""

    uid: str


@dataclass(frozen=True)
class HeartbeatReceived:
    """A member is alive and reports the resources that its process uses."""

    uid: str
    usage: Usage


@dataclass(frozen=True)
class StepsReported:
    """A member's process has finished training steps."""

    uid: str
    report: StepReport


@dataclass(frozen=True)
class ProcessRestarted:
    """A member's agent has started its crashed process again in the pod, for the n-th time."""

    uid: str
    restarts: int


@dataclass(frozen=True)
class ProcessStarted:
    """A member has started the process of a round."""

    uid: str
    round: int


@dataclass(frozen=True)
class ProcessExited:
    """The process of a round has ended on a member.

    Attributes:
        requested: the agent had been asked to stop it.
        retry: it has crashed, and its agent may start it again in the next world.
        failed_seconds_ago: when the first of the member's processes failed.
        node_problem: why the node is broken, by the agent's rules; empty: nothing says so.
    """

    uid: str
    round: int
    exit_code: int
    requested: bool = False
    retry: bool = False
    failed_seconds_ago: float = 0.0
    node_problem: str = ""


@dataclass(frozen=True)
class PlaceRequested:
    """A process asks for its place in the next world. `check_process` has accepted it.

    `left_round`: of the world that it has left; 0: it was in none.
    """

    uid: str
    left_round: int


@dataclass(frozen=True)
class PlaceTaken:
    """A process has got its place in the world of a round."""

    uid: str
    round: int


@dataclass(frozen=True)
class MemberLeaving:
    """A member has to leave, because its node or the user ends its pod."""

    uid: str


@dataclass(frozen=True)
class NodeChecked:
    """A member has checked its node. `number` is that of the check."""

    uid: str
    number: int
    seconds: float
    problem: str = ""
    unreached: tuple[str, ...] = ()
    links: Mapping[str, Link] = field(default_factory=dict)
    device: str = ""
    device_seconds: float = 0.0


# --- from the operator


@dataclass(frozen=True)
class SettingsObserved:
    """The settings of the job as they are now.

    Attributes:
        sizes: the roles' sizes.
        domains: the known topology domains of members, by role and index.
    """

    sizes: Mapping[str, RoleSize] | None
    rules: Rules
    timing: Timing
    domains: Mapping[MemberKey, str] = field(default_factory=dict)
    node_check: NodeCheck = field(default_factory=NodeCheck)


@dataclass(frozen=True)
class DrainOrdered:
    """The operator ordered these pods, and no others, to leave.

    Maps the names of pods to the seconds they may take. A pod may not have registered yet. A member
    that drains already continues to drain.
    """

    seconds: Mapping[str, float]


@dataclass(frozen=True)
class SuccessorsChanged:
    """The members of these roles and indices, and no others, wait for the end of others.

    They alone are no reason for a new world, so a migration costs one world change and not two. A
    world that is formed for another reason includes them.
    """

    places: frozenset[MemberKey]


# --- from the master


@dataclass(frozen=True)
class TrainingHung:
    """The training processes make no progress any more, as the health monitor found."""


@dataclass(frozen=True)
class MasterStalled:
    """The master itself was suspended for some seconds, in which it received nothing."""

    seconds: float


@dataclass(frozen=True)
class StateShared:
    """Another master can claim the stored state: a world must be stored before it is started."""


@dataclass(frozen=True)
class StateStored:
    """The state was stored, with the world of this round, by a write that began at this time."""

    round: int
    began_at: float


@dataclass(frozen=True)
class StateRestored:
    """The state of an earlier master is known. Its members get the usual time to reconnect.

    Attributes:
        world: the UIDs of the world's members by rank.
        finished: a member of the job had finished successfully.
    """

    members: tuple[Member, ...]
    phase: Phase
    round: int
    world: tuple[str, ...]
    finished: bool = False
    world_failed: bool = False
    world_incomplete: bool = False
    successors: frozenset[MemberKey] = frozenset()
    unfit: Mapping[MemberKey, tuple[str, str]] = field(default_factory=dict)
    broken_nodes: tuple[str, ...] = ()


Event = (
    HeartbeatReceived
    | StepsReported
    | MemberRegistered
    | MemberConnected
    | MemberDisconnected
    | ProcessRestarted
    | ProcessStarted
    | ProcessExited
    | PlaceRequested
    | PlaceTaken
    | MemberLeaving
    | NodeChecked
    | SettingsObserved
    | DrainOrdered
    | SuccessorsChanged
    | TrainingHung
    | MasterStalled
    | StateShared
    | StateStored
    | StateRestored
)
