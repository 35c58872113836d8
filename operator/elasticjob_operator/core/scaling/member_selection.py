"""Which members join and which leave when only a number is given: the lowest free indices join, the highest leave."""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import count, islice


def free_indices(used: Container[int]) -> Iterator[int]:
    """Yield the indices that are not used, the lowest first."""
    return (index for index in count() if index not in used)


def members_to_remove(indices: frozenset[int], number: int) -> frozenset[int]:
    """Return the indices of so many members that leave; all of them if there are no more."""
    return frozenset(sorted(indices, reverse=True)[:number])


def with_size(indices: frozenset[int], replicas: int, *, used: frozenset[int], keep: frozenset[int]) -> frozenset[int]:
    """Return the members of a role that is to have `replicas` of them.

    Args:
        indices: the present members.
        replicas: the size of the role.
        used: indices that nobody can get, such as those of pods that still terminate.
        keep: members that stay in any case.
    """
    surplus = len(indices) - replicas
    if surplus <= 0:
        return indices | frozenset(islice(free_indices(used), -surplus))
    return indices - members_to_remove(indices - keep, surplus)
