"""The part that the auto-scaler reads of the ElasticJob and of its ScalePlans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob_api.job_policies import Autoscaling

from elasticjob_master.core.autoscale.decision import Bounds
from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.core.rendezvous.members import Member


@dataclass(frozen=True)
class ContainerResources:
    """The resources that the training container of a member may use.

    Attributes:
        cpu: the requested cores; None if not set.
        memory: the memory limit in bytes; None if not set.
    """

    cpu: float | None = None
    memory: int | None = None


@dataclass(frozen=True)
class RoleResources:
    """The resources of a role's members, and how far they may grow.

    Attributes:
        each: the resources of every member that is not in `by_index`.
        most_memory: the most bytes that one member may have.
        memory_bound: the name of the field that sets `most_memory`.
        requests: cores and bytes that each pod requests, with all its containers.
        desired: the number of members that the operator maintains.
        indices: the indices of the members that have not succeeded.
    """

    each: ContainerResources = field(default_factory=ContainerResources)
    by_index: Mapping[int, ContainerResources] = field(default_factory=dict)
    most_memory: int = 0
    memory_bound: str = "maxMemory"
    requests: Mapping[str, float] = field(default_factory=dict)
    desired: int = 0
    indices: frozenset[int] = frozenset()

    @property
    def is_unwritten(self) -> bool:
        """True if the training container requests neither CPU nor memory.

        The auto-scaler sets the requests of such a role.
        """
        return self.each == ContainerResources()

    @property
    def own_memory(self) -> bool:
        """True if single members have more memory, because they were killed for lack of it."""
        own = max((own.memory or 0 for own in self.by_index.values()), default=0)
        return own > (self.each.memory or 0)

    def of_member(self, member: Member) -> ContainerResources:
        """Return the resources of one member."""
        return self.by_index.get(member.identity.index, self.each)


@dataclass(frozen=True)
class JobScaling:
    """The ElasticJob's scaling settings and present state.

    Attributes:
        desired: the number of its members that the operator maintains.
        cooldown: seconds that one measurement takes.
        plan_unfinished: a ScalePlan waits or is executed.
        indices: the indices of the role's members that have not succeeded.
        free_resources: cores and bytes that resourceLimits leave.
        most_servers: see `ScalingInputs`.
        setting: see `ScalingInputs`.
    """

    role: str
    desired: int
    bounds: Bounds
    enabled: bool = False
    objective: Objective = field(default_factory=Objective)
    cooldown: float = Autoscaling().cooldown_seconds
    plan_unfinished: bool = False
    indices: frozenset[int] = frozenset()
    roles: Mapping[str, RoleResources] = field(default_factory=dict)
    free_resources: Mapping[str, float] = field(default_factory=dict)
    most_servers: Mapping[str, int] = field(default_factory=dict)
    setting: str = ""


@dataclass(frozen=True)
class EndedPlan:
    """A ScalePlan of the master that has ended.

    Attributes:
        requested_size: the size it requested; None if it did not change the size.
        reached_size: the size at its end.
        resources: it also set CPU or memory.
        replacement: the index of the member that replaced a straggler, if one did.
    """

    number: int
    phase: str
    requested_size: int | None
    reached_size: int
    message: str
    resources: bool = False
    replacement: int | None = None
