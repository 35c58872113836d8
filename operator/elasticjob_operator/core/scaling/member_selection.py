"""Chooses the members that join or leave when only a number is given.

The lowest free indices join. Members that have succeeded leave first, then the highest indices.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import count, islice

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.indices import parse_indices


def free_indices(used: Container[int]) -> Iterator[int]:
    """Yield the indices that are not used, the lowest first."""
    return (index for index in count() if index not in used)


def dispensable_members(job: ElasticJob, role: str) -> frozenset[int]:
    """Return the members of a role that leave first: those that have succeeded.

    With `completion.minSucceeded` it is empty, because the success of a member that leaves no
    longer counts.
    """
    if job.spec.replica_specs[role].completion.min_succeeded is not None:
        return frozenset()
    return parse_indices(job.status.replica_statuses[role].succeeded_indices)


def members_to_remove(
    indices: frozenset[int], number: int, *, first: frozenset[int]
) -> frozenset[int]:
    """Return the indices of this number of members that leave, those of `first` before others."""
    return frozenset(
        sorted(indices, key=lambda index: (index in first, index), reverse=True)[:number]
    )


def with_size(
    indices: frozenset[int],
    replicas: int,
    *,
    used: frozenset[int],
    keep: frozenset[int],
    first: frozenset[int],
) -> frozenset[int]:
    """Return the members of a role that is to have `replicas` of them.

    Args:
        indices: the present members.
        replicas: the size of the role.
        used: indices that are not free, such as those of terminating pods.
        keep: members that stay in any case.
        first: members that leave before others do.
    """
    surplus = len(indices) - replicas
    if surplus <= 0:
        return indices | frozenset(islice(free_indices(used), -surplus))
    return indices - members_to_remove(indices - keep, surplus, first=first)
