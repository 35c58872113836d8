"""What the rules see, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory


@dataclass(frozen=True)
class Bounds:
    """Sizes the auto-scaler may ask for.

    Attributes:
        limit: what sets the upper one.
        limit_is_temporary: it will be lifted by itself; until then nothing is settled by it.
    """

    minimum: int
    maximum: int
    limit: str = "maxReplicas"
    limit_is_temporary: bool = False


@dataclass(frozen=True)
class MemberUsage:
    """What one member has used while a size was held, beside what it may use; cores and bytes, None: not bounded.

    Attributes:
        cpu: cores in use, the mean.
        cpu_peak: the most cores seen.
        memory: the most bytes seen.
        near_limit: part of the looks at which memory was nearly used up.
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
    """The members of a role, and how far their resources may grow.

    Attributes:
        most_memory: the most bytes one member may have.
        memory_bound: the field that says so.
    """

    uses: tuple[MemberUsage, ...] = ()
    most_memory: int = 0
    memory_bound: str = "maxMemory"


@dataclass(frozen=True)
class ScalingInputs:
    """The job as it is held and measured.

    Attributes:
        role: the role whose size is looked for.
        size: its members.
        objective: the least a further member must add, as a part of what an average one does.
        horizon: seconds of training that a change can pay in.
        wall: seconds since the epoch.
        roles: all roles, for the rules about CPU and memory.
        servers: the roles that serve parameters.
        free_resources: what resourceLimits leave, by resource; a resource without a limit is missing.
        setting: what else the throughput depends on.
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


@dataclass(frozen=True)
class ScalingDecision:
    """What to do and why; without `size`, `resources`, `migrate` and `remove` it means: stay.

    Attributes:
        size: the new size of the role that is scaled.
        resources: cores and bytes of every member of a role, by resource.
        migrate: cores and bytes of single members, by pod name; they are replaced.
        remove: indices of members of the scaled role that shall be gone.
        memory: what is to be remembered once the plan exists, or at once if there is none.
    """

    reason: str
    memory: ScalingMemory
    size: int | None = None
    resources: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    migrate: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    remove: tuple[int, ...] = ()

    @property
    def changes_nothing(self) -> bool:
        """Nothing shall change."""
        return self.size is None and not self.resources and not self.migrate and not self.remove
