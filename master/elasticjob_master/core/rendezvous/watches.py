"""Which members watch which others, and what they have said about nodes that do not answer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from elasticjob_master.core.rendezvous.members import Member

_CANDIDATES = 64
"""The number of members among which those on other nodes are searched."""


@dataclass
class Suspicion:
    """The node of one address does not answer those who watch it.

    Attributes:
        uids: those of the members there.
        began: when the first connect that failed was tried.
        watchers: the UIDs of the members that have reported it.
        asked: the UIDs of other members that were asked to probe it.
        asked_at: when they were asked; None: they have to be asked, or asked again.
        number: that of the probe.
        unreached_by: the UIDs of those of them that could not reach it.
        answered: one of them has reached it.
    """

    uids: tuple[str, ...]
    began: float
    watchers: set[str] = field(default_factory=set)
    asked: frozenset[str] = frozenset()
    asked_at: float | None = None
    number: int = 0
    unreached_by: set[str] = field(default_factory=set)
    answered: bool = False


@dataclass
class Suspicions:
    """All suspicions.

    Attributes:
        by_address: the suspicions by address.
        checked_at: when they were checked last.
        probed_at: when members were asked last to probe some of them.
        probes: the number of that probe.
        removed: the UIDs of all members that were removed because of a suspicion.
    """

    by_address: dict[str, Suspicion] = field(default_factory=dict)
    checked_at: float = -math.inf
    probed_at: float = -math.inf
    probes: int = 0
    removed: set[str] = field(default_factory=set)


def of_world(world: Sequence[Member]) -> Mapping[str, tuple[str, ...]]:
    """Return the addresses that each member of a world watches, by UID.

    They are those of a member on the next node in the order of ranks, and of one at the other end
    of the world. So each is watched by two, also one whose neighbours vanish together with it.
    """
    sizes = Counter(m.identity.node_name for m in world if m.identity.node_name)
    next_node = max(sizes.values(), default=1)
    watched: dict[str, tuple[str, ...]] = {}
    for position, member in enumerate(world):
        found: tuple[str, ...] = ()
        for distance in (next_node, len(world) // 2):
            found += _first_elsewhere(world, member, position + distance, found)
        watched[member.uid] = found
    return watched


def _first_elsewhere(
    world: Sequence[Member], member: Member, start: int, found: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the first further address of another node from a position in the world on."""
    own = member.identity
    for position in range(start, start + min(len(world), _CANDIDATES)):
        other = world[position % len(world)].identity
        far = not own.node_name or other.node_name != own.node_name
        if far and other.address not in ("", own.address, *found):
            return (other.address,)
    return ()
