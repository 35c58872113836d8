"""Says which members have processes in standby, and why the others have none."""

from __future__ import annotations

from collections.abc import Iterable

from elasticjob_master.core.rendezvous.members import Member

_MOST_REASONS = 3
_MOST_NAMES = 3


def summary(members: Iterable[Member]) -> str:
    """Return a text for users; empty if no member has said anything of it."""
    ready = 0
    without: dict[str, list[str]] = {}
    for member in sorted(members, key=lambda member: member.identity.key):
        count, why_none = member.standby
        if count:
            ready += 1
        elif why_none:
            role, index = member.identity.key
            without.setdefault(why_none, []).append(f"{role}-{index}")
    total = ready + sum(map(len, without.values()))
    if not total:
        return ""
    texts = [f"{ready} of {total} members have processes in standby"]
    for why, names in list(without.items())[:_MOST_REASONS]:
        others = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        texts.append(f"{', '.join(names[:_MOST_NAMES])}{others}: {why}")
    if len(without) > _MOST_REASONS:
        texts.append(f"{len(without) - _MOST_REASONS} other reasons")
    return "; ".join(texts)
