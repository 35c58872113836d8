"""What a running plan holds a job to, as a function of the plan's status alone.

So whoever executes the plan comes to the same members, wherever the last one stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.indices import parse_indices
from elasticjob_api.scaleplan import ScalePlan
from msgspec.structs import replace

from elasticjob_operator.core.members.reconcile import keep_only_members
from elasticjob_operator.core.model.plan import Indices, current_indices


@dataclass(frozen=True)
class PlanMembership:
    """The members of every role while a plan runs.

    Attributes:
        before: when the plan began.
        targets: when its change of size is done; migrations are not in it.
        held: everyone who may have a pod.
        staying: those of them who are not on their way out; only these are repaired.
        counted: those who make up the size: a migration's surplus is not among them, nor who is on the way out.
        sizes: how many the role shall have.
    """

    before: Indices
    targets: Indices
    indices: Indices
    staying: Indices
    counted: Indices
    sizes: dict[str, int]

    @property
    def added(self) -> Indices:
        """Those whom the change of size adds."""
        return {role: indices - self.before[role] for role, indices in self.targets.items()}

    @property
    def removed(self) -> Indices:
        """Those whom the change of size takes away."""
        return {role: indices - self.targets[role] for role, indices in self.before.items()}


def membership_of(status: ElasticJobStatus, plan: ScalePlan) -> PlanMembership:
    """Return the members a plan that has begun stands for now."""
    present = current_indices(status)
    before = {role: _parsed(plan.status.before, role, indices) for role, indices in present.items()}
    targets = {role: _parsed(plan.status.targets, role, indices) for role, indices in present.items()}
    drained = plan.status.execution_time is not None
    membership = PlanMembership(before, targets, {}, {}, {}, {})
    for role in present:
        held = targets[role] if drained else before[role] | targets[role]
        counted, leaving = targets[role], held - targets[role]
        for move in plan.status.migrations:
            if move.role != role or move.phase in ("Pending", "Undone"):
                continue
            old, new = frozenset([move.index]), frozenset([move.replacement])
            held = held - old | new if move.phase == "Done" else held | new
            if move.phase != "Starting":
                counted = counted - old | new
            if move.phase == "Draining":
                leaving |= old
        membership.indices[role], membership.staying[role], membership.counted[role] = held, held - leaving, counted
        membership.sizes[role] = len(targets[role] if drained else before[role])
    return membership


def with_membership(status: ElasticJobStatus, plan: ScalePlan, members: PlanMembership) -> ElasticJobStatus:
    """Return the job's status held to the plan's members, with the resources the plan has for new ones."""
    replicas = dict(status.replica_statuses)
    for role, held in members.indices.items():
        old = parse_indices(replicas[role].indices)
        given = {
            index: resources
            for index, resources in plan.status.resources_by_index.get(role, {}).items()
            if int(index) in held - old
        }
        kept = keep_only_members(replicas[role], held)
        replicas[role] = replace(
            kept, desired=members.sizes[role], resources_by_index={**kept.resources_by_index, **given}
        )
    return replace(status, replica_statuses=replicas)


def without_plan(status: ElasticJobStatus) -> ElasticJobStatus:
    """Return the status of a job that no plan changes: everyone held counts, whatever a plan that is gone has left."""
    replicas = {
        role: replace(replica, desired=len(parse_indices(replica.indices)))
        for role, replica in status.replica_statuses.items()
    }
    return replace(status, replica_statuses=replicas)


def _parsed(indices: Mapping[str, str], role: str, default: frozenset[int]) -> frozenset[int]:
    return parse_indices(indices[role]) if role in indices else default
