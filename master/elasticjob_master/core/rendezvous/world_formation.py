"""The order of the next world's members, and the conditions for forming it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from elasticjob_api.pod_identity import MemberKey

from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.rules import RoleSize, Timing


def rank_order(
    last_world: Sequence[str],
    members: Sequence[Member],
    domains: Mapping[MemberKey, str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Return the UIDs of the next world's members by rank.

    Survivors keep their order, so the longest-serving one is rank 0 and has the state that the
    others load. Joiners follow, those of one node next to each other, because neighbouring ranks
    communicate most: first the nodes of the survivors, from the last rank to the first, then the
    other nodes in the order in which their first member joined.

    Where topology domains are known, this is the order within each of them, and those of one domain
    are next to each other: first the domains of the survivors, in the order of their ranks. So rank
    0 stays the same, but other survivors may move.

    Args:
        last_world: UIDs of the last world's members by rank.
        members: the members of the next one, oldest first.
        domains: the known topology domains of members, by role and index. Members without a domain
            stay together, too.
    """
    by_uid = {member.uid: member for member in members}
    survivors = [uid for uid in last_world if uid in by_uid]
    node_order: dict[str, int] = {}
    for uid in reversed(survivors):
        node_order.setdefault(_node(by_uid[uid]), len(node_order))
    surviving = set(survivors)
    joiners = [member for member in members if member.uid not in surviving]
    for member in joiners:
        node_order.setdefault(_node(member), len(node_order))
    joiners.sort(key=lambda member: node_order[_node(member)])
    world = [*(by_uid[uid] for uid in survivors), *joiners]
    domain_order: dict[str | None, int] = {}
    for member in world:
        domain_order.setdefault(_domain(member, domains), len(domain_order))
    world.sort(key=lambda member: domain_order[_domain(member, domains)])
    return tuple(member.uid for member in world)


def joins_settled(
    join_times: tuple[float, float] | None, *, timing: Timing, at_start: bool, now: float
) -> bool:
    """Return whether the last join is long enough ago, or the first one is too long ago."""
    if join_times is None:
        return True
    first, last = join_times
    window = timing.settle_at_start if at_start else timing.settle
    return now - last >= window or now - first >= timing.settle_limit


def join_times(times: Iterable[float | None]) -> tuple[float, float] | None:
    """Return the first and the last of the known times, if any."""
    known = [time for time in times if time is not None]
    return (min(known), max(known)) if known else None


def has_enough_members(
    counts: Mapping[str, int], sizes: Mapping[str, RoleSize], *, all_desired: bool
) -> bool:
    """Return whether every role has its least number of members, or its desired number."""
    return all(
        counts.get(role, 0) >= (size.desired if all_desired else size.minimum)
        for role, size in sizes.items()
    )


def count_by_role(members: Iterable[Member]) -> Mapping[str, int]:
    """Return the number of members of each role."""
    return Counter(member.identity.role for member in members)


def _domain(member: Member, domains: Mapping[MemberKey, str]) -> str | None:
    return domains.get(member.identity.key)


def _node(member: Member) -> str:
    """Return the member's node name, or a unique one if it is not known."""
    return member.identity.node_name or f"?{member.uid}"
