"""The vocabulary of plans: what one comes to, the members a job is held to, and the resources a member has."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from itertools import count

from elasticjob_api.elasticjob import ElasticJobStatus
from elasticjob_api.indices import parse_indices
from elasticjob_api.meta import Resources
from elasticjob_api.names import RESOURCE_GPU
from elasticjob_api.scaleplan import Migration

Indices = dict[str, frozenset[int]]
Quantities = dict[str, int | str]


class PlanRefused(Exception):
    """The request cannot be met; the message names the field, the value and the bound."""


@dataclass(frozen=True)
class ResolvedPlan:
    """What a plan comes to.

    Attributes:
        before: indices per role now.
        targets: indices per role when it is done.
        resources: resources per role that every member shall get.
        resources_by_index: resources of single new members.
        migrations: members to replace when the size is what it shall be; they are in `targets`.
    """

    before: Indices
    targets: Indices
    resources: dict[str, Quantities]
    resources_by_index: dict[str, dict[int, Quantities]]
    migrations: tuple[Migration, ...] = ()


def current_indices(status: ElasticJobStatus) -> Indices:
    """Return the indices per role that the operator holds the job to."""
    return {role: parse_indices(replica.indices) for role, replica in status.replica_statuses.items()}


def as_quantities(resources: Resources) -> Quantities:
    """Return resources by their names in Kubernetes."""
    values = {"cpu": resources.cpu, "memory": resources.memory, RESOURCE_GPU: resources.gpu}
    return {name: value for name, value in values.items() if value is not None}


def member_resources(status: ElasticJobStatus, role: str, index: int) -> Quantities:
    """Return the resources that finished plans have set for a member, in place of its template's."""
    replica = status.replica_statuses[role]
    return {**replica.resources, **replica.resources_by_index.get(str(index), {})}


def free_indices(used: Container[int]) -> Iterator[int]:
    """Yield the indices that are not used, the lowest first."""
    return (index for index in count() if index not in used)
