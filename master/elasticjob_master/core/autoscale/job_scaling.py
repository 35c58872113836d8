"""What the ElasticJob says about its scaling, and how it stands: what the auto-scaler needs beside what it measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob_master.core.autoscale.container_resources import ContainerResources
from elasticjob_master.core.autoscale.decision import Bounds
from elasticjob_master.core.rendezvous.members import Member


@dataclass(frozen=True)
class RoleResources:
    """What the members of a role may use, and how far that may grow.

    Attributes:
        each: of a member.
        by_index: of single members, where it is another.
        most_memory: the most bytes of one member, and what sets that.
    """

    each: ContainerResources = field(default_factory=ContainerResources)
    by_index: Mapping[int, ContainerResources] = field(default_factory=dict)
    most_memory: int = 0
    memory_bound: str = "maxMemory"

    def of_member(self, member: Member) -> ContainerResources:
        """Return one member's share."""
        return self.by_index.get(member.identity.index, self.each)


@dataclass(frozen=True)
class JobScaling:
    """What the ElasticJob says about its scaling, and how it stands.

    Attributes:
        desired: members of the role the operator holds the job to.
        plan_unfinished: a ScalePlan waits or is being executed.
        indices: of the members of the role that have not succeeded.
        roles: what the members of each role may use.
        free_resources: what resourceLimits leave, by resource.
        setting: what else the throughput depends on.
    """

    role: str
    desired: int
    bounds: Bounds
    enabled: bool = False
    objective: float = 0.5
    cooldown: float = 300.0
    plan_unfinished: bool = False
    indices: frozenset[int] = frozenset()
    roles: Mapping[str, RoleResources] = field(default_factory=dict)
    free_resources: Mapping[str, float] = field(default_factory=dict)
    setting: str = ""


@dataclass(frozen=True)
class EndedPlan:
    """The end of a plan of ours.

    Attributes:
        requested_size: the size it asked for; None when it was about something else.
        reached_size: the size there was at its end.
    """

    number: int
    phase: str
    requested_size: int | None
    reached_size: int
    message: str
