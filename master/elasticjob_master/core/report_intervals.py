"""How often agents tell, so that a master with ten thousand of them has as much to do as one with two thousand."""

from __future__ import annotations

from dataclasses import dataclass

MESSAGES_PER_SECOND = 1000
"""Heartbeats of all agents together, and as many step reports, are kept below this."""
HEARTBEAT_SECONDS = 2.0
REPORT_SECONDS = 0.2
LONGEST_REPORT_SECONDS = 5.0
_WORDS_WHILE_LOST = 3
"""So many heartbeats must be missing in a row until a member is taken for lost."""
_NEWS = 1.5


@dataclass(frozen=True)
class Intervals:
    """Seconds between two heartbeats of one agent, and the shortest time between two of its step reports."""

    heartbeat: float
    report: float


def intervals_for(agents: int, *, lost: float) -> Intervals:
    """Return what so many agents are told; `lost` is the silence in seconds after which one is taken for lost."""
    share = agents / MESSAGES_PER_SECOND
    return Intervals(
        heartbeat=min(max(HEARTBEAT_SECONDS, share), lost / _WORDS_WHILE_LOST),
        report=min(max(REPORT_SECONDS, share), LONGEST_REPORT_SECONDS),
    )


def differ_much(told: Intervals, now: Intervals) -> bool:
    """Tell whether the difference is worth a message to every agent: more than half, either way."""
    return any(
        max(before, after) > _NEWS * min(before, after)
        for before, after in ((told.heartbeat, now.heartbeat), (told.report, now.report))
    )
