"""Which members take much longer for a step than the others, for so long that it is no accident.

Members that wait for each other at every step all take as long as the slowest one. Then only the time that each of them
works by itself tells which one that is; where no member tells it, nobody is a straggler.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from elasticjob_master.core.progress import Report

if TYPE_CHECKING:
    from elasticjob_master.core.rendezvous.members import Member

LEAST_MEMBERS = 3
"""With fewer nobody can say which of them is the odd one."""
_MEMORY_SECONDS = 10.0
_KEPT = 0.75
_SILENT_SECONDS = 15.0


@dataclass(slots=True)
class Work:
    """The time of one member's own steps in this round, and what is made of it.

    Attributes:
        by_itself: the time is what the member works without waiting for others.
        turning_since: since when it has looked like the opposite of `straggler`.
    """

    round: int = 0
    steps: float = 0.0
    seconds: float = 0.0
    by_itself: bool = False
    told_at: float = 0.0
    interval: float = 0.0
    straggler: bool = False
    turning_since: float | None = None

    @property
    def step_seconds(self) -> float:
        """Seconds of one step, lately; 0 when not known."""
        return self.seconds / self.steps if self.steps else 0.0

    def add(self, report: Report, steps: int, now: float) -> None:
        """Take a report that stands for so many steps. The first of a round has the start-up in it and is left out."""
        by_itself = report.compute_seconds > 0
        if report.round != self.round or by_itself != self.by_itself:
            self.round, self.by_itself = report.round, by_itself
            self.steps = self.seconds = 0.0
            return
        seconds = report.compute_seconds or report.seconds
        if not steps or not seconds:
            return
        keep = max(math.exp(-report.seconds / _MEMORY_SECONDS), _KEPT)
        self.steps = self.steps * keep + steps
        self.seconds = self.seconds * keep + seconds
        self.told_at, self.interval = now, report.seconds

    def told(self, now: float) -> bool:
        """Tell whether something is known of it that is not too old."""
        return self.steps > 0 and now - self.told_at <= max(_SILENT_SECONDS, 5 * self.interval)


def judge(members: Iterable[Member], *, factor: float, seconds: float, now: float) -> list[Member]:
    """Mark who has been over `factor` times the median of its role for so many seconds; return whose mark has changed.

    A mark goes when the member has been nearer to the median than half of what made it one, for as long.
    """
    telling: dict[tuple[str, bool], list[Member]] = {}
    for member in members:
        if member.work.told(now):
            telling.setdefault((member.identity.role, member.work.by_itself), []).append(member)
        else:
            member.work.turning_since = None
    usual = _medians(telling)
    changed = []
    for group, present in telling.items():
        for member in present:
            work = member.work
            bound = (1 + factor) / 2 if work.straggler else factor
            slow = group in usual and work.step_seconds > bound * usual[group]
            if _turns(work, slow, seconds, now):
                changed.append(member)
    return changed


def _medians(telling: Mapping[tuple[str, bool], list[Member]]) -> dict[tuple[str, bool], float]:
    """Return the median of every role; only of those that tell what they work by themselves, where there are any."""
    return {
        (role, by_itself): median(member.work.step_seconds for member in present)
        for (role, by_itself), present in telling.items()
        if len(present) >= LEAST_MEMBERS and (by_itself or (role, True) not in telling)
    }


def _turns(work: Work, slow: bool, seconds: float, now: float) -> bool:
    if slow == work.straggler:
        work.turning_since = None
        return False
    if work.turning_since is None:
        work.turning_since = now
    if now - work.turning_since < seconds:
        return False
    work.straggler, work.turning_since = slow, None
    return True
