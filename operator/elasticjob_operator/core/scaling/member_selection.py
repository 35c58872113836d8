"""Chooses the members that join or leave when only a number is given.

The lowest free indices join. Members that have succeeded leave first, then those that are not
ready, since they do not train, and then the highest indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from elasticjob_api.elasticjob import ElasticJob
from elasticjob_api.indices import IndexSet, parse_indices

from elasticjob_operator.core.model.pods import RolePods

_NOBODY = IndexSet()


def dispensable_members(job: ElasticJob, role: str, pods: RolePods) -> tuple[IndexSet, ...]:
    """Return the members of a role that leave first, group by group.

    Those that have succeeded are among them only without `completion.minSucceeded`: the success of
    a member that leaves no longer counts.
    """
    status = job.status.replica_statuses[role]
    succeeded = parse_indices(status.succeeded_indices)
    not_ready = parse_indices(status.indices) - succeeded - pods.ready
    if job.spec.replica_specs[role].completion.min_succeeded is not None:
        return (not_ready,)
    return succeeded, not_ready


def members_to_remove(
    indices: IndexSet, number: int, *, first: Sequence[IndexSet] = ()
) -> IndexSet:
    """Return the indices of this number of members that leave, those of `first` before others."""
    chosen: list[int] = []
    for group in (*first, indices):
        leaving = indices & group
        chosen += sorted(leaving, reverse=True)
        indices -= leaving
    return IndexSet(chosen[:number])


def with_size(
    indices: IndexSet,
    replicas: int,
    *,
    used: IndexSet,
    keep: IndexSet = _NOBODY,
    first: Sequence[IndexSet] = (),
) -> IndexSet:
    """Return the members of a role that is to have `replicas` of them.

    Args:
        indices: the present members.
        replicas: the size of the role.
        used: indices that are not free, such as those of terminating pods.
        keep: members that stay in any case.
        first: groups of members that leave before others do.
    """
    surplus = len(indices) - replicas
    if surplus <= 0:
        return indices | IndexSet(islice(used.free(), -surplus))
    return indices - members_to_remove(indices - keep, surplus, first=first)
