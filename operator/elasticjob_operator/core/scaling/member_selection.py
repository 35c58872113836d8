"""Chooses the members that join or leave when only a number is given.

The lowest free indices join. Members that have succeeded leave first, then the highest indices.
"""

from __future__ import annotations

from itertools import islice

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.indices import IndexSet, parse_indices


def dispensable_members(job: ElasticJob, role: str) -> IndexSet:
    """Return the members of a role that leave first: those that have succeeded.

    With `completion.minSucceeded` it is empty, because the success of a member that leaves no
    longer counts.
    """
    if job.spec.replica_specs[role].completion.min_succeeded is not None:
        return IndexSet()
    return parse_indices(job.status.replica_statuses[role].succeeded_indices)


def members_to_remove(indices: IndexSet, number: int, *, first: IndexSet) -> IndexSet:
    """Return the indices of this number of members that leave, those of `first` before others."""
    chosen = sorted(indices & first, reverse=True) + sorted(indices - first, reverse=True)
    return IndexSet(chosen[:number])


def with_size(
    indices: IndexSet,
    replicas: int,
    *,
    used: IndexSet,
    keep: IndexSet,
    first: IndexSet,
) -> IndexSet:
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
        return indices | IndexSet(islice(used.free(), -surplus))
    return indices - members_to_remove(indices - keep, surplus, first=first)
