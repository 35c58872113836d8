"""Watches the training's health.

Finds stalls and stragglers, and decides when the training must be restarted.
The rules are in `core.stall` and `core.stragglers`; here they get what the job's state says.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from elasticjob_api.step_report import StepReport

from elasticjob_master.core import stragglers
from elasticjob_master.core.history import NewEvent
from elasticjob_master.core.stall import (
    MOST_RESTARTS,
    StallDetector,
    StallRule,
    StoredStall,
    TrainingActivity,
)
from elasticjob_master.monitors.view import JobView, trains

log = logging.getLogger(__name__)

_STALL_SECONDS = 1.0
_STRAGGLERS_SECONDS = 2.0
"""Between two checks."""
_STACKS_SECONDS = 15.0
"""How long a restart waits for the stacks, whose collection takes at most 10 s."""


@dataclass(frozen=True)
class HealthFindings:
    """New findings about the training's health.

    Attributes:
        events: what is to be recorded.
        restart: all training processes are to be restarted.
        stacks: the stacks of all training processes are wanted, for `explain_stall`.
    """

    events: tuple[NewEvent, ...] = ()
    restart: bool = False
    stacks: bool = False


_NOTHING_NEW = HealthFindings()


class HealthMonitor:
    """The known facts about the training's health.

    Attributes:
        stall: the time since the last step.
        stragglers: the pods of members that are much slower than the others, sorted.
        why_stalled: which ranks wait in which collective, and which do not; empty: not known.
    """

    def __init__(self) -> None:
        self.stall = StallDetector()
        self.stragglers: tuple[str, ...] = ()
        self.why_stalled = ""
        self._asked_round = 0
        self._restart_from = 0.0
        self._stall_due = 0.0
        self._stragglers_due = 0.0

    @property
    def stalled_since(self) -> float | None:
        """Since when the training is stalled, in seconds since the epoch; None if it is not."""
        return self.stall.since

    def step_finished(
        self, report: StepReport, *, process_round: int, wall: float
    ) -> NewEvent | None:
        """Take a report of the present world's steps.

        Return the end of the stall that it ends, if it does.
        """
        if self.stall.step_finished(report.seconds, wall, process_round=process_round):
            self.why_stalled = ""
            self._asked_round = 0
            return _event("Resumed", f"step {report.step} is finished")
        return None

    def tick(self, job: JobView, now: float, *, wall: float) -> HealthFindings:
        """Make the checks that are due."""
        if now < self._stall_due and now < self._stragglers_due:
            return _NOTHING_NEW
        events: list[NewEvent] = []
        restart = False
        stacks = False
        if now >= self._stall_due:
            self._stall_due = now + _STALL_SECONDS
            restart = self._check_stall(job, now, wall, events)
            stacks = self._wants_stacks(job, now)
        if now >= self._stragglers_due:
            self._stragglers_due = now + _STRAGGLERS_SECONDS
            self._check_stragglers(job, now, events)
        if events or restart or stacks:
            return HealthFindings(tuple(events), restart, stacks)
        return _NOTHING_NEW

    def explain_stall(self, why: str, *, process_round: int) -> NewEvent | None:
        """Take what the stacks of a round say about its stall; return the event if that is new."""
        if self.stall.since is None or process_round != self._asked_round:
            return None
        self._restart_from = 0.0
        is_new = why not in ("", self.why_stalled)
        self.why_stalled = why
        return _event("StallExplained", why, warning=True) if is_new else None

    def restore(
        self,
        stall: StoredStall,
        *,
        process_round: int,
        stepped_in_round: bool,
        stragglers: Iterable[str],
        wall: float,
    ) -> None:
        """Continue with the findings of an earlier master; see `StallDetector.restore`."""
        self.stall.restore(
            stall, process_round=process_round, stepped_in_round=stepped_in_round, wall=wall
        )
        self.stragglers = tuple(sorted(stragglers))

    def _check_stall(self, job: JobView, now: float, wall: float, events: list[NewEvent]) -> bool:
        """Let the stall detector see the time that has passed.

        Return whether the training is to be restarted.
        """
        health = job.facts.health
        stall = self.stall
        before = self.stall.since
        # The stacks are taken before the processes are killed, if that takes no longer.
        is_explained = self._asked_round == job.rendezvous.round and now >= self._restart_from
        rule = StallRule(
            health.stall_factor,
            float(health.stall_seconds),
            restart=health.on_stall == "Restart" and is_explained,
        )
        restart = stall.advance(
            now, wall, activity=_activity(job), process_round=job.rendezvous.round, rule=rule
        )
        if before is None and stall.since is not None:
            message = f"no step for {stall.limit(rule):.0f} s; the last one is {job.progress.step}"
            events.append(_event("Stalled", message, warning=True))
        elif before is not None and stall.since is None:
            events.append(_event("Resumed", "the training is over"))
        if restart:
            times = f"{stall.restarts} of at most {MOST_RESTARTS} times in a row"
            message = f"starting all processes anew, {times}"
            events.append(_event("RestartedForStall", message, warning=True))
        return restart

    def _wants_stacks(self, job: JobView, now: float) -> bool:
        """Return whether the stacks of a stalled round are to be taken: once in a round."""
        present = job.rendezvous.round
        if not self.stall.overdue or self._asked_round == present:
            if self.stall.since is None:
                self.why_stalled = ""
            return False
        self._asked_round = present
        self._restart_from = now + _STACKS_SECONDS
        return True

    def _check_stragglers(self, job: JobView, now: float, events: list[NewEvent]) -> None:
        health = job.facts.health
        changed = stragglers.update_stragglers(
            job.members,
            factor=health.straggler_factor,
            seconds=float(health.straggler_seconds),
            now=now,
        )
        for member in changed:
            step_times = member.step_times
            takes = f"{member.identity.pod_name} takes {step_times.step_seconds:.3g} s for a step"
            if step_times.straggler:
                bound = f"over {health.straggler_factor:g} times the median"
                events.append(_event("StragglerFound", f"{takes}, {bound}", warning=True))
            else:
                events.append(_event("StragglerRecovered", takes))
        self.stragglers = tuple(
            sorted(m.identity.pod_name for m in job.members if m.step_times.straggler)
        )


def _activity(job: JobView) -> TrainingActivity:
    """Return whether a missing step says something about the training."""
    if not len(job.members) or job.rendezvous.finished_at is not None:
        return "finished"
    return "training" if trains(job) else "paused"


def _event(reason: str, message: str, *, warning: bool = False) -> NewEvent:
    log.log(logging.WARNING if warning else logging.INFO, "%s: %s", reason, message)
    return NewEvent(reason, message)
