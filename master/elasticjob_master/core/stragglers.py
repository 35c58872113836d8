"""Which members take much longer for a step than the others, for so long that it is no accident.

Members that wait for each other at every step all take as long as the slowest one. Then only the time that each of them
works by itself tells which one that is; where no member tells it, nobody is a straggler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.step_times import StepTimes

LEAST_MEMBERS = 3
"""With fewer nobody can say which of them is the odd one."""


def update_stragglers(members: Iterable[Member], *, factor: float, seconds: float, now: float) -> list[Member]:
    """Mark who has been over `factor` times the median of its role for so many seconds; return whose mark has changed.

    A mark goes when the member has been nearer to the median than half of what made it one, for as long.
    """
    telling: dict[tuple[str, bool], list[Member]] = {}
    for member in members:
        if member.step_times.is_known(now):
            telling.setdefault((member.identity.role, member.step_times.own_work), []).append(member)
        else:
            member.step_times.change_pending_since = None
    usual = _medians(telling)
    changed = []
    for group, present in telling.items():
        for member in present:
            step_times = member.step_times
            bound = (1 + factor) / 2 if step_times.straggler else factor
            slow = group in usual and step_times.step_seconds > bound * usual[group]
            if _turns(step_times, slow, seconds, now):
                changed.append(member)
    return changed


def _medians(telling: Mapping[tuple[str, bool], list[Member]]) -> dict[tuple[str, bool], float]:
    """Return the median of every role; only of those that tell what they work by themselves, where there are any."""
    return {
        (role, by_itself): median(member.step_times.step_seconds for member in present)
        for (role, by_itself), present in telling.items()
        if len(present) >= LEAST_MEMBERS and (by_itself or (role, True) not in telling)
    }


def _turns(step_times: StepTimes, slow: bool, seconds: float, now: float) -> bool:
    if slow == step_times.straggler:
        step_times.change_pending_since = None
        return False
    if step_times.change_pending_since is None:
        step_times.change_pending_since = now
    if now - step_times.change_pending_since < seconds:
        return False
    step_times.straggler, step_times.change_pending_since = slow, None
    return True
