"""The inputs of the auto-scaler's rules, and the decision that they return."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticjob_api.job_policies import Autoscaling
from elasticjob_api.pod_identity import MemberKey

from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS
from elasticjob_master.core.straggler_replacement import Straggler


@dataclass(frozen=True)
class Bounds:
    """The sizes that the auto-scaler may request.

    Attributes:
        limit: the name of the field that sets the maximum, for the reason of a decision.
        limit_is_temporary: the limit will be lifted, so the search does not settle at it.
        multiple_of: only multiples of it are requested; minimum and maximum are multiples, too.
        by_need: only resourceLimits bound the size, and the need of a member is not measured yet.
    """

    minimum: int
    maximum: int
    limit: str = "maxReplicas"
    limit_is_temporary: bool = False
    multiple_of: int = 1
    by_need: bool = False


def candidates(bounds: Bounds, size: int, others: Iterable[int] = ()) -> list[int]:
    """Return the sizes that are worth a thought and may be requested, and the present one.

    These are powers of two, halves and quarters between them, which fill nodes and divide batches,
    and those of the `others` that are allowed.
    """
    each = bounds.multiple_of
    found = {bounds.minimum, bounds.maximum, *others}
    step = 1
    while step * each <= bounds.maximum:
        found |= {groups * each for groups in (step, step * 5 // 4, step * 3 // 2, step * 7 // 4)}
        step *= 2
    return sorted({size, *(n for n in found if is_allowed(n, bounds))})


def is_allowed(size: int, bounds: Bounds) -> bool:
    """Return whether a size may be requested."""
    return bounds.minimum <= size <= bounds.maximum and size % bounds.multiple_of == 0


def allowed(size: int, bounds: Bounds) -> int:
    """Return the largest size within the bounds that is not larger than this one."""
    size = min(max(size, bounds.minimum), bounds.maximum)
    return max(bounds.minimum, size // bounds.multiple_of * bounds.multiple_of)


@dataclass(frozen=True)
class MemberUsage:
    """The use of one member during a measurement window, and its limits.

    Attributes:
        cpu: mean cores in use after the warm-up; 0 if unknown.
        cpu_peak: most cores in use in one sample.
        memory: most bytes in use in one sample.
        near_limit: the part of the samples, 0 to 1, in which its memory was nearly used up.
        cpu_request: cores; None if not set.
        memory_limit: bytes; None if not set.
        node_cores: cores of its node; 0 if unknown.
    """

    name: str
    cpu: float = 0.0
    cpu_peak: float = 0.0
    memory: int = 0
    near_limit: float = 0.0
    cpu_request: float | None = None
    memory_limit: int | None = None
    node_cores: float = 0.0

    @property
    def load(self) -> float:
        """The part of its CPU that it uses; 0 if it may use any."""
        return self.cpu / self.cpu_request if self.cpu_request else 0.0

    @property
    def is_nearly_used_up(self) -> bool:
        """True if in some sample nearly all of its CPU or memory was in use."""
        part = THRESHOLDS.nearly_used_up
        cpu = part * (self.cpu_request or math.inf)
        return self.cpu_peak >= cpu or self.memory >= part * (self.memory_limit or math.inf)


@dataclass(frozen=True)
class RoleUsage:
    """The usage of a role's members, and how far their memory may grow.

    Attributes:
        most_memory: the most bytes that one member may have.
        memory_bound: the name of the field that sets `most_memory`.
        own_memory: single members have more memory, because they were killed for lack of it.
    """

    uses: tuple[MemberUsage, ...] = ()
    most_memory: int = 0
    memory_bound: str = "maxMemory"
    own_memory: bool = False

    @property
    def cpu(self) -> float:
        """The most cores that a member requests."""
        return max((use.cpu_request or 0.0 for use in self.uses), default=0.0)

    @property
    def memory(self) -> int:
        """The most bytes that a member may use."""
        return max((use.memory_limit or 0 for use in self.uses), default=0)


@dataclass(frozen=True)
class UnwrittenRole:
    """A role whose training containers request neither CPU nor memory.

    Attributes:
        best_effort: no container of its pods requests anything. Kubernetes cannot add requests to
            such a pod, so it must be replaced.
    """

    indices: tuple[int, ...] = ()
    best_effort: bool = True


@dataclass(frozen=True)
class ScalingInputs:
    """The job's present state, limits and measured usage.

    Attributes:
        horizon: seconds of training that remain, in which a change must regain its cost.
        wall: the present time in seconds since the epoch.
        servers: the roles of parameter servers.
        free_resources: cores and bytes that resourceLimits leave; no entry means no limit.
        unwritten: the roles whose members request neither CPU nor memory.
        server_counts: the number of members of each role.
        most_servers: the most members of each role of servers, where the framework can distribute
            its variables over more of them.
        setting: identifies everything else that the throughput depends on. Rates of one setting do
            not hold for another.
        window_is_over: the latest measurement took a whole window. In the middle of one, only what
            clearly pays and can be undone is decided.
        rate_rises: it belongs to a slow start of the world, so no size is chosen by it.
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
    window_seconds: float = Autoscaling().cooldown_seconds
    window_is_over: bool = True
    rate_rises: bool = False


@dataclass(frozen=True)
class ScalingDecision:
    """A change and its reason.

    Attributes:
        reason: the numbers behind the decision, for users.
        memory: the auto-scaler's new state. It is kept once the plan exists, or at once if the
            decision changes nothing.
        servers: the new number of parameter servers, by role.
        resources: the new cores and bytes of each member, by role.
        migrate: the new cores and bytes of single members, which are replaced, by pod name.
        replace: role and index of members that are replaced together to get their role's requests.
        remove: indices of members of the scaled role to remove.
        straggler: the member that is replaced because it is slow.
    """

    reason: str
    memory: ScalingMemory
    size: int | None = None
    servers: Mapping[str, int] = field(default_factory=dict)
    resources: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    migrate: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    replace: tuple[MemberKey, ...] = ()
    remove: tuple[int, ...] = ()
    straggler: Straggler | None = None

    @property
    def changes_nothing(self) -> bool:
        """True if the decision needs no ScalePlan."""
        changes = (self.servers, self.resources, self.migrate, self.remove, self.straggler)
        return self.size is None and not any(changes)
