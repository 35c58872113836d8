"""The inputs of the auto-scaler's rules, and their decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory
from elasticjob_master.core.straggler_replacement import Straggler


@dataclass(frozen=True)
class Bounds:
    """The sizes that the auto-scaler may request.

    Attributes:
        limit: the name of what sets the maximum, for the reason of a decision.
        limit_is_temporary: the limit will be lifted, so the search does not settle at it.
        multiple_of: only multiples of it are requested; minimum and maximum are some.
        by_need: nothing but resourceLimits bounds the size, and what a member needs of them has yet to be measured.
    """

    minimum: int
    maximum: int
    limit: str = "maxReplicas"
    limit_is_temporary: bool = False
    multiple_of: int = 1
    by_need: bool = False


@dataclass(frozen=True)
class MemberUsage:
    """What one member has used during a measurement window, and what it may use.

    Attributes:
        name: of its pod.
        cpu: mean cores in use.
        cpu_peak: most cores in use in any sample.
        steady_cpu: mean cores in use after the warm-up; 0: not known.
        memory: most bytes in use in any sample.
        near_limit: the share of samples, 0 to 1, in which its memory was nearly used up.
        cpu_request: cores; None: not set.
        memory_limit: bytes; None: not set.
    """

    name: str
    cpu: float = 0.0
    cpu_peak: float = 0.0
    steady_cpu: float = 0.0
    memory: int = 0
    near_limit: float = 0.0
    cpu_request: float | None = None
    memory_limit: int | None = None


@dataclass(frozen=True)
class RoleUsage:
    """The usage of a role's members, and how far their memory may grow.

    Attributes:
        most_memory: the most bytes that one member may have.
        memory_bound: the name of the field that sets that.
        own_memory: members were given memory of their own, after they were killed for lack of it.
    """

    uses: tuple[MemberUsage, ...] = ()
    most_memory: int = 0
    memory_bound: str = "maxMemory"
    own_memory: bool = False


@dataclass(frozen=True)
class UnwrittenRole:
    """A role whose training containers request neither CPU nor memory.

    Attributes:
        indices: of its members that train.
        best_effort: no container of its pods requests anything; Kubernetes changes such a pod's requests only by
            another pod.
    """

    indices: tuple[int, ...] = ()
    best_effort: bool = True


@dataclass(frozen=True)
class ScalingInputs:
    """The job's present state, limits and measured usage.

    Attributes:
        role: the role that is scaled.
        size: its present number of members.
        objective: what the size is chosen for.
        horizon: seconds of training that remain, in which the cost of a change must be regained.
        wall: the present time in seconds since the epoch.
        roles: the measured usage by role.
        servers: the roles of parameter servers.
        free_resources: cores and bytes that resourceLimits leave; a resource without a limit is missing.
        unwritten: the roles whose members request neither CPU nor memory.
        server_counts: the number of members of each of these roles.
        most_servers: how many they may have, where the framework can distribute its variables anew over more of them.
        setting: identifies everything else that the throughput depends on; the rates of one setting do not hold for
            another.
        window_is_over: the latest measurement took a whole window; in the middle of one, only what clearly pays and can
            be taken back is decided.
    """

    role: str
    size: int
    bounds: Bounds
    objective: Objective = field(default_factory=Objective)
    horizon: float = 3600.0
    wall: float = 0.0
    roles: Mapping[str, RoleUsage] = field(default_factory=dict)
    servers: tuple[str, ...] = ()
    free_resources: Mapping[str, float] = field(default_factory=dict)
    unwritten: Mapping[str, UnwrittenRole] = field(default_factory=dict)
    server_counts: Mapping[str, int] = field(default_factory=dict)
    most_servers: Mapping[str, int] = field(default_factory=dict)
    setting: str = ""
    window_is_over: bool = True


@dataclass(frozen=True)
class ScalingDecision:
    """What to change and why.

    Without `size`, `servers`, `resources`, `migrate` and `remove` nothing changes.

    Attributes:
        reason: the numbers behind the decision, for users.
        memory: the new state of the auto-scaler, to be kept once the plan exists, or at once if there is none.
        size: the new size of the scaled role.
        servers: by role of parameter servers, their new number.
        resources: by role, the new cores and bytes of each of its members.
        migrate: by pod name, the new cores and bytes of single members, which are replaced.
        replace: role and index of members that are replaced, all at once, to have what their role gets.
        remove: indices of members of the scaled role to remove.
        straggler: who is replaced for being slow; then it is no decision of the auto-scaler.
    """

    reason: str
    memory: ScalingMemory
    size: int | None = None
    servers: Mapping[str, int] = field(default_factory=dict)
    resources: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    migrate: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    replace: tuple[tuple[str, int], ...] = ()
    remove: tuple[int, ...] = ()
    straggler: Straggler | None = None

    @property
    def changes_nothing(self) -> bool:
        """Whether no ScalePlan follows from it."""
        changes = (self.servers, self.resources, self.migrate, self.remove, self.straggler)
        return self.size is None and not any(changes)
