"""Computes the members of a job while a plan runs, from the plan's status alone.

So a new operator computes the same members as the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.indices import IndexSet, parse_indices
from elasticjob_api.scaleplan import ScalePlan
from msgspec.structs import replace

from elasticjob_operator.core.members.reconcile import keep_only_members
from elasticjob_operator.core.model.plan import Indices, current_indices


@dataclass(frozen=True)
class PlanMembership:
    """The members of every role while a plan runs.

    Attributes:
        before: the members when the plan began.
        targets: the members when its change of size is done, without its migrations.
        indices: all members that may have a pod now.
        staying: those of `indices` that are not being removed; only these get new pods.
        counted: those that make up the size: neither the surplus of a migration nor members being
            removed.
        sizes: the desired number of members per role.
    """

    before: Indices
    targets: Indices
    indices: Indices
    staying: Indices
    counted: Indices
    sizes: dict[str, int]

    @property
    def added(self) -> Indices:
        """The members that the change of size adds."""
        return {role: indices - self.before[role] for role, indices in self.targets.items()}

    @property
    def removed(self) -> Indices:
        """The members that the change of size removes."""
        return {role: indices - self.targets[role] for role, indices in self.before.items()}


def membership_of(status: ElasticJobStatus, plan: ScalePlan) -> PlanMembership:
    """Return the job's members while this plan, which has begun, is executed."""
    present = current_indices(status)
    before = {
        role: _parse_or(plan.status.before, role, indices) for role, indices in present.items()
    }
    targets = {
        role: _parse_or(plan.status.targets, role, indices) for role, indices in present.items()
    }
    drained = plan.status.execution_time is not None
    membership = PlanMembership(before, targets, {}, {}, {}, {})
    for role in present:
        indices = targets[role] if drained else before[role] | targets[role]
        counted = targets[role]
        leaving = indices - targets[role]
        for move in plan.status.migrations:
            if move.role != role or move.phase in ("Pending", "Undone"):
                continue
            if move.phase == "Done":
                indices = indices.with_index(move.index, present=False)
            indices = indices.with_index(move.replacement)
            if move.phase != "Starting":
                counted = counted.with_index(move.index, present=False)
                counted = counted.with_index(move.replacement)
            if move.phase == "Draining":
                leaving = leaving.with_index(move.index)
        membership.indices[role] = indices
        membership.staying[role] = indices - leaving
        membership.counted[role] = counted
        membership.sizes[role] = len(targets[role] if drained else before[role])
    return membership


def with_membership(
    status: ElasticJobStatus, plan: ScalePlan, members: PlanMembership
) -> ElasticJobStatus:
    """Return the job's status with the plan's members, and the resources of new ones."""
    replicas = dict(status.replica_statuses)
    for role, indices in members.indices.items():
        old = parse_indices(replicas[role].indices)
        given = {
            index: resources
            for index, resources in plan.status.resources_by_index.get(role, {}).items()
            if int(index) in indices - old
        }
        kept = keep_only_members(replicas[role], indices)
        replicas[role] = replace(
            kept,
            desired=members.sizes[role],
            asked=_asked(replicas[role].asked, plan, members, role),
            resources_by_index={**kept.resources_by_index, **given},
        )
    return replace(status, replica_statuses=replicas)


def _asked(asked: int | None, plan: ScalePlan, members: PlanMembership, role: str) -> int | None:
    """Return the size that was asked for before an ElasticPool took members of a role.

    What anybody else does to the size is a new wish.
    """
    before = len(members.before[role])
    target = len(members.targets[role])
    if before == target:
        return asked
    if plan.spec.source != "Pool":
        return None
    return max(asked or 0, before) if target < before else asked


def without_plan(status: ElasticJobStatus) -> ElasticJobStatus:
    """Return the status of a job without a running plan.

    All members count, also a deleted plan's.
    """
    replicas = {
        role: replace(replica, desired=len(parse_indices(replica.indices)))
        for role, replica in status.replica_statuses.items()
    }
    return replace(status, replica_statuses=replicas)


def _parse_or(indices: Mapping[str, str], role: str, default: IndexSet) -> IndexSet:
    return parse_indices(indices[role]) if role in indices else default
