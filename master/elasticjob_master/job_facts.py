"""The ElasticJob and its ScalePlans as the master observes them, in one value.

The cluster shell makes a new value whenever one of these objects changes. A master without
Kubernetes makes one from its command line and its standard input.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.health import Health
from elasticjob_api.pod_identity import MemberKey
from elasticjob_api.scaleplan import FINISHED, ScalePlan

from elasticjob_master.core.autoscale.job_scaling import EndedPlan, JobScaling
from elasticjob_master.core.rendezvous.rules import RoleSize, Timing
from elasticjob_master.script_order import ScriptOrder

HourlyCosts = Mapping[str | MemberKey, float]


@dataclass(frozen=True)
class ObservedPlan:
    """A ScalePlan of the job.

    Attributes:
        number: the number of a plan that a master of this job has created; None for other plans.
        requested_size: the size of the scaled role that the plan asks for, if it does.
        replaced_pod: the straggler that the plan replaces, if it does.
        ended: the result of such a plan that has ended.
    """

    plan: ScalePlan
    number: int | None = None
    requested_size: int | None = None
    replaced_pod: str | None = None
    ended: EndedPlan | None = None

    @property
    def unfinished(self) -> bool:
        """Whether the plan still waits or is being executed."""
        return self.plan.status.phase not in FINISHED


@dataclass(frozen=True)
class PlanFacts:
    """All plans of the job, and what the unfinished ones ask of the master now.

    Attributes:
        successors: roles and indices of the members that replace others, while those still train.
        draining: the pods that have to leave, and the seconds they may take.
        script: what a member's agent has to run.
        scaling: how the auto-scaler may scale the job; None if it has no role to scale.
    """

    plans: tuple[ObservedPlan, ...] = ()
    successors: frozenset[MemberKey] = frozenset()
    draining: Mapping[str, float] = field(default_factory=dict)
    script: ScriptOrder | None = None
    scaling: JobScaling | None = None


@dataclass(frozen=True)
class JobFacts:
    """The ElasticJob.

    Attributes:
        sizes: the roles' sizes; None until they are known.
        all_ready: the first world needs all desired members.
        stop_seconds: how long a process may take to stop.
        hourly_costs: what a member costs an hour, by role and, with resources of its own, by role
            and index; None if the administrator gives no prices.
        memory_for_state: the memory limit of a member of a job that could keep its checkpoints in
            memory and does not; None for other jobs.
        own_port: the port at which the members meet instead of their framework's usual one; 0 if
            they have an address of their own.
        profile: the name of the profile that the job reads and writes, if any.
        plans: None until all plans are known. Otherwise a successor would count as a member
            that joins.
    """

    sizes: Mapping[str, RoleSize] | None = None
    domains: Mapping[MemberKey, str] = field(default_factory=dict)
    all_ready: bool = False
    stop_seconds: float = Timing.stop
    health: Health = field(default_factory=Health)
    status: ElasticJobStatus = field(default_factory=ElasticJobStatus)
    suspended: bool = False
    gpus: Mapping[str, int] = field(default_factory=dict)
    hourly_costs: HourlyCosts | None = None
    memory_for_state: int | None = None
    own_port: int = 0
    profile: str | None = None
    plans: PlanFacts | None = None


MOST_PLANS = 50


def latest_plans(plans: Iterable[ScalePlan]) -> list[ScalePlan]:
    """Return plans, oldest first. If there are too many, the oldest finished ones are left out."""

    def age(plan: ScalePlan) -> tuple[str, str]:
        return plan.metadata.creation_timestamp or "", plan.metadata.name

    def importance(plan: ScalePlan) -> tuple[bool, str, str]:
        return plan.status.phase not in FINISHED, *age(plan)

    return sorted(heapq.nlargest(MOST_PLANS, plans, key=importance), key=age)
