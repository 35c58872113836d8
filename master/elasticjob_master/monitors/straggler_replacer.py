"""Watches how long stragglers have been slow, and decides when one is replaced.

The rules are in `core.straggler_replacement`.
"""

from __future__ import annotations

from collections.abc import Iterable

from elasticjob_master.core import straggler_replacement, stragglers
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.straggler_replacement import (
    Replaced,
    ReplacementMemory,
    Straggler,
    Verdict,
)
from elasticjob_master.core.stragglers import Slowness
from elasticjob_master.monitors.view import JobView, trains

_CHECK_SECONDS = 2.0
"""Between two checks."""


class StragglerReplacer:
    """Decides on replacements while `onStraggler` is `Replace` and nothing else changes the job.

    Attributes:
        memory: the replacements; the caller stores it when a call has changed it.
        why_not: why no member is replaced although stragglers have been slow for long; or empty.
    """

    def __init__(self) -> None:
        self.memory = ReplacementMemory()
        self.why_not = ""
        self._slow: dict[str, tuple[float, float]] = {}
        """By UID: the seconds for which a straggler was slow while all trained, and since when, in
        wall time.
        """
        self._checked_at = 0.0

    def tick(
        self,
        job: JobView,
        now: float,
        *,
        wall: float,
        plan_under_way: bool,
        cost: float,
        horizon: float,
    ) -> Verdict | None:
        """Return a verdict with a straggler to replace, when it is time for it.

        `plan_under_way`: a ScalePlan waits or is executed, or is being created. `cost` and
        `horizon` are seconds of training: what a change of the world costs, and what remains.
        """
        if now - self._checked_at < _CHECK_SECONDS:
            return None
        elapsed = min(now - self._checked_at, 2 * _CHECK_SECONDS)
        self._checked_at = now
        if job.facts.health.on_straggler != "Replace":
            self._slow = {}
            self.why_not = ""
            return None
        if not trains(job):
            return None
        slow = stragglers.slownesses(job.members, factor=job.facts.health.straggler_factor, now=now)
        self._count(job, slow, elapsed, wall)
        if not self._slow:
            self.why_not = ""
        lasting = self._lasting(job, slow)
        if plan_under_way or not lasting:
            return None
        most = job.facts.health.max_straggler_replacements
        verdict = straggler_replacement.judge(
            self.memory,
            lasting,
            most=most,
            cost=cost,
            horizon=horizon,
            wall=wall,
            last_refusal=self.why_not,
        )
        self.why_not = "" if verdict.replace else verdict.reason
        return verdict if verdict.replace else None

    def plan_created(self, number: int, straggler: Straggler, *, wall: float) -> None:
        """The plan that replaces a straggler exists."""
        self.memory = straggler_replacement.created(
            self.memory, straggler.replaced_by(number), wall
        )

    def plan_adopted(self, number: int, pod: str, member: Member | None, *, wall: float) -> None:
        """Such a plan exists, which an earlier master created and had no time to remember."""
        who = None if member is None else member.identity
        replaced = Replaced(
            number, pod, who.role if who else "", who.index if who else -1, since=wall
        )
        self.memory = straggler_replacement.created(self.memory, replaced, wall)

    def plan_ended(self, replacement: int | None, *, wall: float) -> Replaced | None:
        """The latest plan has ended.

        Return the replacement if it has succeeded and was not known.
        """
        if self.memory.ended:
            return None
        self.memory = straggler_replacement.ended(self.memory, replacement, wall)
        self._slow = {}
        return next((each for each in self.memory.replaced if each.plan == self.memory.plan), None)

    def _count(self, job: JobView, slow: Iterable[Slowness], elapsed: float, wall: float) -> None:
        """Count the time for which each straggler was slow.

        It is reset when a mark is removed.
        """
        marked = {member.uid for member in job.members if member.step_times.straggler}
        self._slow = {uid: counted for uid, counted in self._slow.items() if uid in marked}
        for each in slow:
            seconds, since = self._slow.get(
                each.member.uid, (0.0, wall - job.facts.health.straggler_seconds)
            )
            self._slow[each.member.uid] = (seconds + elapsed, since)

    def _lasting(self, job: JobView, slow: Iterable[Slowness]) -> list[Straggler]:
        """Return those of the world's stragglers that have been slow for long enough."""
        ranks = {uid: rank for rank, uid in enumerate(job.rendezvous.world)}
        least = straggler_replacement.LASTING_FACTOR * job.facts.health.straggler_seconds
        found = []
        for each in slow:
            uid = each.member.uid
            seconds, since = self._slow[uid]
            if seconds >= least and uid in ranks:
                kept = job.rendezvous.is_kept(each.member)
                found.append(Straggler(each, ranks[uid], seconds, since, kept))
        return found
