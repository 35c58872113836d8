"""What scaling changes in one pass of the job's controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticjob_api.elasticjob import ElasticJobStatus

from elasticjob_operator.core.manifests.placement import AvoidedNodes
from elasticjob_operator.core.model.actions import Action
from elasticjob_operator.core.model.plan import Indices, Quantities, ResolvedPlan


@dataclass
class ScalingResult:
    """What scaling changes now: the job's new status, its members, and actions.

    Attributes:
        status: the job's status with what the plan has changed.
        staying: members per role that the plan does not remove, without failed replacements, which it will.
        counted: members per role whose success counts: those that make up the size, without the surplus of a
            replacement, and those that drain, since the job has not succeeded while one of them trains.
        overrides: resources per role that the plan is setting for every member.
        avoided_nodes: by role and index of a new member, the nodes that its pod shall avoid.
        planned: the plan that begins now, or waits for quota; what it needs counts already.
        actions: what to do after the job's status is written.
        requeue_after: seconds after which to decide again without a change; None for never.
    """

    status: ElasticJobStatus
    staying: Indices
    counted: Indices
    overrides: Mapping[str, Quantities] = field(default_factory=dict)
    avoided_nodes: Mapping[tuple[str, int], AvoidedNodes] = field(default_factory=dict)
    planned: ResolvedPlan | None = None
    actions: list[Action] = field(default_factory=list)
    requeue_after: float | None = None
