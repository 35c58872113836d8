"""Who is in the next world, in which order, and when it is time to make it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.rendezvous.rules import RoleSize, Timing


def rank_order(world: Sequence[str], fresh: Sequence[Member]) -> tuple[str, ...]:
    """Return the next world's members by rank.

    Survivors keep their order, so the longest-serving one is rank 0 and has the state the others take over. Joiners
    follow, those of one node side by side, because ranks that are neighbours talk most; first those whose node the
    last survivors are on, then node by node as their first member has joined.

    Args:
        world: the last world's members by rank.
        fresh: the members of the next one, oldest first.
    """
    by_uid = {member.uid: member for member in fresh}
    survivors = [uid for uid in world if uid in by_uid]
    places: dict[str, int] = {}
    for uid in reversed(survivors):
        places.setdefault(_node(by_uid[uid]), len(places))
    kept = set(survivors)
    joiners = [member for member in fresh if member.uid not in kept]
    for member in joiners:
        places.setdefault(_node(member), len(places))
    joiners.sort(key=lambda member: places[_node(member)])
    return (*survivors, *(member.uid for member in joiners))


def joins_settled(joiners: Iterable[Member], *, timing: Timing, first_world: bool, now: float) -> bool:
    """Tell whether those who have joined need not wait for more: it is quiet, or has been busy for long enough."""
    times = [member.joined_at for member in joiners if member.joined_at is not None]
    if not times:
        return True
    quiet = timing.settle_first if first_world else timing.settle
    return now - max(times) >= quiet or now - min(times) >= timing.settle_limit


def has_enough_members(present: Iterable[Member], sizes: Mapping[str, RoleSize], *, all_desired: bool) -> bool:
    """Tell whether every role has its least number of members, or all it shall have."""
    counts = Counter(member.identity.role for member in present)
    return all(counts[role] >= (size.desired if all_desired else size.minimum) for role, size in sizes.items())


def _node(member: Member) -> str:
    """Return what members next to each other have in common; one whose node is not known is alone."""
    return member.identity.node_name or f"?{member.uid}"
