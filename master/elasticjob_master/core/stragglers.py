"""Finds members that take much longer for a step than the others of their role, for a while.

If members wait for each other at every step, all of them take as long as the slowest one. Only the
time of a member's own work shows which one is slow. If no member reports that time, no straggler is
found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.step_times import StepTimes

LEAST_MEMBERS = 3
"""With fewer members the median is meaningless."""

_Group = tuple[str, bool]
"""A role, and whether the times are those of the members' own work."""


@dataclass(frozen=True)
class Slowness:
    """Compares a straggler with the other members of its role at present.

    Attributes:
        median: the median time of a step.
        slowest_other: the longest time of a step of a member that is not a straggler.
        stragglers: the number of members that are marked as stragglers.
        members: the number of members that report their times.
    """

    member: Member
    median: float
    slowest_other: float
    stragglers: int
    members: int


def slownesses(members: Iterable[Member], *, factor: float, now: float) -> list[Slowness]:
    """Return the marked members whose time is over `factor` times the median of their role now."""
    everyone = list(members)
    groups = _groups(everyone, now)
    marked = Counter(member.identity.role for member in everyone if member.step_times.straggler)
    found = []
    for group, middle in _medians(groups).items():
        present = groups[group]
        times = [m.step_times.step_seconds for m in present if not m.step_times.straggler]
        slowest = max(times, default=middle)
        found += [
            Slowness(member, middle, slowest, marked[group[0]], len(present))
            for member in present
            if member.step_times.straggler and member.step_times.step_seconds > factor * middle
        ]
    return found


def update_stragglers(
    members: Iterable[Member], *, factor: float, seconds: float, now: float
) -> list[Member]:
    """Mark members as stragglers or remove their marks; return those whose mark has changed.

    A member is marked after its time was over `factor` times the median of its role for `seconds`.
    Its mark is removed after its time was below half that excess over the median for as long.
    """
    everyone = list(members)
    groups = _groups(everyone, now)
    for member in everyone:
        if not member.step_times.is_known(now):
            member.step_times.change_pending_since = None
    medians = _medians(groups)
    changed = []
    for group, present in groups.items():
        for member in present:
            step_times = member.step_times
            bound = (1 + factor) / 2 if step_times.straggler else factor
            slow = group in medians and step_times.step_seconds > bound * medians[group]
            if _mark_changes(step_times, slow, seconds, now):
                changed.append(member)
    return changed


def _groups(members: Iterable[Member], now: float) -> dict[_Group, list[Member]]:
    """Return the members with recent step times, by what their times can be compared with."""
    groups: dict[_Group, list[Member]] = {}
    for member in members:
        if member.step_times.is_known(now):
            group = (member.identity.role, member.step_times.own_work)
            groups.setdefault(group, []).append(member)
    return groups


def _medians(groups: Mapping[_Group, list[Member]]) -> dict[_Group, float]:
    """Return the median step time of each role.

    If members of a role report the time of their own work, only they count.
    """
    return {
        (role, own_work): median(member.step_times.step_seconds for member in present)
        for (role, own_work), present in groups.items()
        if len(present) >= LEAST_MEMBERS and (own_work or (role, True) not in groups)
    }


def _mark_changes(step_times: StepTimes, slow: bool, seconds: float, now: float) -> bool:
    if slow == step_times.straggler:
        step_times.change_pending_since = None
        return False
    if step_times.change_pending_since is None:
        step_times.change_pending_since = now
    if now - step_times.change_pending_since < seconds:
        return False
    step_times.straggler = slow
    step_times.change_pending_since = None
    return True
