"""Stragglers.

Members that take much longer for a step than the others of their role, for a sustained time.
Members that wait for each other at every step all take as long as the slowest one. Then only the
time of each member's own work shows which one that is. Where no member reports that time, no
straggler is found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.step_times import StepTimes

LEAST_MEMBERS = 3
"""With fewer members the median says nothing."""


@dataclass(frozen=True)
class Slowness:
    """How much slower than the others a straggler is at present.

    Attributes:
        member: the straggler.
        median: the median time for a step of its role's members.
        slowest_other: the longest time of a member that is no straggler.
        stragglers: how many members of its role are marked.
        members: how many of its role report their times.
    """

    member: Member
    median: float
    slowest_other: float
    stragglers: int
    members: int


def slownesses(members: Iterable[Member], *, factor: float, now: float) -> list[Slowness]:
    """Return the marked members whose time is over `factor` times the median of their role at this moment."""
    everyone = list(members)
    by_group: dict[tuple[str, bool], list[Member]] = {}
    for member in everyone:
        if member.step_times.is_known(now):
            by_group.setdefault((member.identity.role, member.step_times.own_work), []).append(
                member
            )
    marked = Counter(member.identity.role for member in everyone if member.step_times.straggler)
    found = []
    for group, middle in _medians(by_group).items():
        times = [m.step_times.step_seconds for m in by_group[group] if not m.step_times.straggler]
        slowest = max(times, default=middle)
        found += [
            Slowness(member, middle, slowest, marked[group[0]], len(by_group[group]))
            for member in by_group[group]
            if member.step_times.straggler and member.step_times.step_seconds > factor * middle
        ]
    return found


def update_stragglers(
    members: Iterable[Member], *, factor: float, seconds: float, now: float
) -> list[Member]:
    """Mark members that were over `factor` times the median of their role for so many seconds.

    Return changed ones.
    A mark is removed when the member was below half that excess over the median for as long.
    """
    by_group: dict[tuple[str, bool], list[Member]] = {}
    for member in members:
        if member.step_times.is_known(now):
            by_group.setdefault((member.identity.role, member.step_times.own_work), []).append(
                member
            )
        else:
            member.step_times.change_pending_since = None
    medians = _medians(by_group)
    changed = []
    for group, in_group in by_group.items():
        for member in in_group:
            step_times = member.step_times
            bound = (1 + factor) / 2 if step_times.straggler else factor
            slow = group in medians and step_times.step_seconds > bound * medians[group]
            if _mark_changes(step_times, slow, seconds, now):
                changed.append(member)
    return changed


def _medians(by_group: Mapping[tuple[str, bool], list[Member]]) -> dict[tuple[str, bool], float]:
    """Return each role's median step time.

    Of its members that report their own work, if there are any.
    """
    return {
        (role, own_work): median(member.step_times.step_seconds for member in present)
        for (role, own_work), present in by_group.items()
        if len(present) >= LEAST_MEMBERS and (own_work or (role, True) not in by_group)
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
