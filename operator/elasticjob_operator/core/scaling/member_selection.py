"""Which members join and which leave when only a number is given.

The lowest free indices join. Of the members, those that have succeeded leave first, because they
lose nothing by it; then the highest indices leave.
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

    With `completion.minSucceeded` there are none: the job needs that many successes, and a member
    that leaves takes its own with it.
    """
    if job.spec.replica_specs[role].completion.min_succeeded is not None:
        return frozenset()
    return parse_indices(job.status.replica_statuses[role].succeeded_indices)


def members_to_remove(
    indices: frozenset[int], number: int, *, first: frozenset[int]
) -> frozenset[int]:
    """Return the indices of so many members that leave, those of `first` before others.

    All if there are no more.
    """
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
        used: indices that nobody can get, such as those of pods that still terminate.
        keep: members that stay in any case.
        first: members that leave before others do.
    """
    surplus = len(indices) - replicas
    if surplus <= 0:
        return indices | frozenset(islice(free_indices(used), -surplus))
    return indices - members_to_remove(indices - keep, surplus, first=first)
