"""Finds the members whose network is slow, by the connections that pairs of members have measured.

Each member measures with two partners, one after the other, and is a partner of two. A fit member
is slow with a slow partner, and a slow member with every partner. So the best of a member's
connections counts. Connections within a node do not count, as they do not use the network. Neither
do those to members that train, which use their network and their CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from elasticjob_master.core.rendezvous.members import Link, Member

FACTOR = 4.0
"""Larger than that of a node's work, as the programs that measure add their own times."""
LEAST_EXTRA_SECONDS = 0.005
"""A round trip that is longer by less than this may be due to a busy CPU."""
_MIB = float(1 << 20)

_Links = Mapping[str, Mapping[str, Link]]


def members_with_slow_links(group: Sequence[Member], *, least: int) -> dict[str, str]:
    """Return by UID the members whose connections are all slow, and what was measured.

    A member is compared with the median of the best connections of those that were checked
    together, if those of `least` members are known. So at most half of them are slow. One of its
    connections must lead to a member that has a fast one: else the other ends may be the slow ones.
    """
    links = _links(group)
    if len(links) < least:
        return {}
    rates = {uid: max(each.bytes_per_second for each in of.values()) for uid, of in links.items()}
    trips = {uid: min(each.round_trip_seconds for each in of.values()) for uid, of in links.items()}
    rate = median(rates.values())
    trip = median(trips.values())
    most = FACTOR * trip + LEAST_EXTRA_SECONDS
    found = _with_fast_partner(links, lambda uid: FACTOR * rates[uid] < rate)
    late = _with_fast_partner(links, lambda uid: trips[uid] > most)
    return {
        uid: f"its node sends and receives at most {rates[uid] / _MIB:.3g} MiB/s, "
        f"under 1/{FACTOR:g} of the median of {len(links)} members ({rate / _MIB:.3g} MiB/s)"
        if uid in found
        else f"a round trip from its node takes at least {1000 * trips[uid]:.3g} ms, "
        f"the median of {len(links)} members is {1000 * trip:.3g} ms"
        for uid in (*found, *late)
    }


def _with_fast_partner(links: _Links, slow: Callable[[str], bool]) -> list[str]:
    return [uid for uid in links if slow(uid) and not all(slow(other) for other in links[uid])]


def _links(group: Sequence[Member]) -> _Links:
    """Return by UID a member's measured connections, in both directions, by the other's UID."""
    by_address = {each.identity.address: each for each in group}
    links: dict[str, dict[str, Link]] = {}
    for member in group:
        for address, link in member.node_check.links.items():
            other = by_address.get(address)
            node = member.identity.node_name
            if other is None or (node and node == other.identity.node_name):
                continue
            links.setdefault(member.uid, {})[other.uid] = link
            links.setdefault(other.uid, {}).setdefault(member.uid, link)
    return links
