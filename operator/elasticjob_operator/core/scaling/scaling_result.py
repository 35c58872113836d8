"""The result of scaling in one decision: the job's members, and what to do about its plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.pod_identity import MemberKey

from elasticjob_operator.core.manifests.placement import AvoidedNodes
from elasticjob_operator.core.model.actions import Action
from elasticjob_operator.core.model.plan import Indices, Quantities, ResolvedPlan


@dataclass(frozen=True)
class ScalingResult:
    """What scaling changes now: the job's new status, its members, and actions.

    Attributes:
        status: the job's status with what the plan has changed.
        staying: members per role that the plan does not remove; without failed replacements.
        counted: members per role whose success counts. These make up the size, without the surplus
            of a replacement, and with those that drain: the job has not succeeded while one of them
            trains.
        overrides: resources per role that the plan is setting for every member.
        avoided_nodes: by role and index of a new member, the nodes that its pod avoids.
        planned: the plan that begins now, or waits for quota; what it needs counts already.
        first: what to do before the job's status is written: a plan that begins is stored first.
        actions: what to do after the job's status is written.
        requeue_after: seconds after which to decide again without a change; None for never.
    """

    status: ElasticJobStatus
    staying: Indices
    counted: Indices
    overrides: Mapping[str, Quantities] = field(default_factory=dict)
    avoided_nodes: Mapping[MemberKey, AvoidedNodes] = field(default_factory=dict)
    planned: ResolvedPlan | None = None
    first: Sequence[Action] = ()
    actions: Sequence[Action] = ()
    requeue_after: float | None = None
