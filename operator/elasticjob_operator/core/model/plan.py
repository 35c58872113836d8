"""Defines the types of scaling: a resolved plan, member indices by role, and quantities."""

from __future__ import annotations

from dataclasses import dataclass

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.indices import IndexSet, parse_indices
from elasticjob_api.quantity import parse_quantity
from elasticjob_api.scaleplan import Migration, PlanPhase

Indices = dict[str, IndexSet]
"""Member indices by role."""
Quantities = dict[str, int | str]
"""Quantities by resource name, such as `{"cpu": "500m", "memory": "2Gi", "nvidia.com/gpu": 1}`."""


ACTIVE_PHASES: tuple[PlanPhase, ...] = ("Draining", "Executing")
"""The phases of a ScalePlan that is being executed."""


class PlanRefused(Exception):
    """A plan or request is impossible; the message names the field, the value and the bound."""


@dataclass(frozen=True)
class ResolvedPlan:
    """A plan with all of its members resolved to indices.

    Attributes:
        before: indices per role now.
        targets: indices per role when it is done.
        resources: resources per role for every member.
        resources_by_index: resources of single new members, per role and index.
        migrations: members to replace after the change of size; they are in `targets`.
    """

    before: Indices
    targets: Indices
    resources: dict[str, Quantities]
    resources_by_index: dict[str, dict[int, Quantities]]
    migrations: tuple[Migration, ...] = ()


def current_indices(status: ElasticJobStatus) -> Indices:
    """Return the member indices per role by the job's status."""
    return {
        role: parse_indices(replica.indices) for role, replica in status.replica_statuses.items()
    }


def staying_indices(status: ElasticJobStatus) -> Indices:
    """Return the member indices per role without those of removed roles, which are not replaced."""
    return {
        role: IndexSet() if status.replica_statuses[role].removed else indices
        for role, indices in current_indices(status).items()
    }


def with_plan_resources(
    status: ElasticJobStatus, role: str, index: int, by_plan: Quantities
) -> Quantities:
    """Return the resources of a member while a plan sets some of them.

    A member that has got more memory keeps it. Otherwise a member that ran out of the plan's memory
    would restart with it again and again.
    """
    return {
        **member_resources(status, role, index),
        **with_own_memory(status, role, index, by_plan),
    }


def with_own_memory(
    status: ElasticJobStatus, role: str, index: int, by_plan: Quantities
) -> Quantities:
    """Return the plan's resources for a member, with the member's own memory if that is more."""
    own = status.replica_statuses[role].resources_by_index.get(str(index), {}).get("memory")
    if own is None or "memory" not in by_plan:
        return by_plan
    return {**by_plan, "memory": max(own, by_plan["memory"], key=parse_quantity)}


def member_resources(status: ElasticJobStatus, role: str, index: int) -> Quantities:
    """Return the resources that finished plans have set for a member.

    They override the template.
    """
    replica = status.replica_statuses[role]
    return {**replica.resources, **replica.resources_by_index.get(str(index), {})}
