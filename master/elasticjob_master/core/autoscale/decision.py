"""The inputs of the auto-scaler's rules, and their decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory


@dataclass(frozen=True)
class Bounds:
    """The sizes that the auto-scaler may request.

    Attributes:
        limit: the name of what sets the maximum, for the reason of a decision.
        limit_is_temporary: the limit will be lifted, so the search does not settle at it.
        multiple_of: only multiples of it are requested; minimum and maximum are some.
    """

    minimum: int
    maximum: int
    limit: str = "maxReplicas"
    limit_is_temporary: bool = False
    multiple_of: int = 1


@dataclass(frozen=True)
class MemberUsage:
    """What one member has used during a measurement window, and what it may use.

    Attributes:
        name: of its pod.
        cpu: mean cores in use.
        cpu_peak: most cores in use in any sample.
        memory: most bytes in use in any sample.
        near_limit: the share of samples, 0 to 1, in which its memory was nearly used up.
        cpu_request: cores; None: not set.
        memory_limit: bytes; None: not set.
    """

    name: str
    cpu: float = 0.0
    cpu_peak: float = 0.0
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
class ScalingInputs:
    """The job's present state, limits and measured usage.

    Attributes:
        role: the role that is scaled.
        size: its present number of members.
        objective: the least throughput a further member must add, relative to the average member (0 to 1).
        horizon: seconds of training that remain, in which the cost of a change must be regained.
        wall: the present time in seconds since the epoch.
        roles: the measured usage by role.
        servers: the roles of parameter servers.
        free_resources: cores and bytes that resourceLimits leave; a resource without a limit is missing.
        setting: identifies everything else that the throughput depends on; the rates of one setting do not hold for
            another.
        window_is_over: the latest measurement took a whole window; in the middle of one, only what clearly pays and can
            be taken back is decided.
    """

    role: str
    size: int
    bounds: Bounds
    objective: float = 0.5
    horizon: float = 3600.0
    wall: float = 0.0
    roles: Mapping[str, RoleUsage] = field(default_factory=dict)
    servers: tuple[str, ...] = ()
    free_resources: Mapping[str, float] = field(default_factory=dict)
    setting: str = ""
    window_is_over: bool = True


@dataclass(frozen=True)
class ScalingDecision:
    """What to change and why; without `size`, `resources`, `migrate` and `remove` nothing changes.

    Attributes:
        reason: the numbers behind the decision, for users.
        memory: the new state of the auto-scaler, to be kept once the plan exists, or at once if there is none.
        size: the new size of the scaled role.
        resources: by role, the new cores and bytes of each of its members.
        migrate: by pod name, the new cores and bytes of single members, which are replaced.
        remove: indices of members of the scaled role to remove.
    """

    reason: str
    memory: ScalingMemory
    size: int | None = None
    resources: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    migrate: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    remove: tuple[int, ...] = ()

    @property
    def changes_nothing(self) -> bool:
        """Whether no ScalePlan follows from it."""
        return self.size is None and not self.resources and not self.migrate and not self.remove
