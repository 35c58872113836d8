"""Chooses how often agents send heartbeats and step reports, to bound the master's load."""

from __future__ import annotations

from dataclasses import dataclass

MESSAGES_PER_SECOND = 1000
"""The most heartbeats of all agents together, and also the most step reports."""
HEARTBEAT_SECONDS = 2.0
REPORT_SECONDS = 0.2
LONGEST_REPORT_SECONDS = 5.0
_HEARTBEATS_UNTIL_LOST = 3
"""The number of consecutive heartbeats that must be missing before a member counts as lost."""
_SIGNIFICANT_FACTOR = 1.5


@dataclass(frozen=True)
class Intervals:
    """The seconds between two heartbeats of an agent, and the shortest time between two reports."""

    heartbeat: float
    report: float


def intervals_for(agents: int, *, lost: float) -> Intervals:
    """Return the intervals for a number of agents.

    A member counts as lost after `lost` seconds without a heartbeat.
    """
    share = agents / MESSAGES_PER_SECOND
    return Intervals(
        heartbeat=min(max(HEARTBEAT_SECONDS, share), lost / _HEARTBEATS_UNTIL_LOST),
        report=min(max(REPORT_SECONDS, share), LONGEST_REPORT_SECONDS),
    )


def differ_much(sent: Intervals, now: Intervals) -> bool:
    """Return whether one of the intervals has changed by more than half."""
    return _differs(sent.heartbeat, now.heartbeat) or _differs(sent.report, now.report)


def _differs(before: float, after: float) -> bool:
    return max(before, after) > _SIGNIFICANT_FACTOR * min(before, after)
