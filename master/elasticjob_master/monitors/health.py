"""Watches the training's health: tells of stalls and stragglers, and starts the training anew if the job says so.

The rules are in `core.stall` and `core.stragglers`; here they get what the controller knows, and what they find is
told.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from elasticjob_master.core import stragglers
from elasticjob_master.core.progress import Report
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.core.stall import MOST_RESTARTS, StallRule, TrainingActivity

if TYPE_CHECKING:
    from elasticjob_master.controller import Controller

log = logging.getLogger(__name__)

_STALL_EVERY = 1.0
_STRAGGLERS_EVERY = 2.0


class HealthMonitor:
    """Looks at a controller's state as time passes."""

    def __init__(self, job: Controller) -> None:
        self._job = job
        self._stall_due = 0.0
        self._stragglers_due = 0.0

    def reported(self, member: Member, report: Report, *, now: float, wall: float, stepped: bool) -> None:
        """A member has reported; `member.step` is still its last step before."""
        job = self._job
        member.step_times.add(report, report.steps or max(0, report.step - member.step), now)
        if not stepped or report.round != job.rendezvous.round:
            return  # what was trained before says nothing of the present world
        if job.stall.step_finished(report.seconds, wall, process_round=job.rendezvous.round):
            self._tell("Resumed", f"step {report.step} is finished")

    def tick(self, now: float) -> None:
        """Look again, if it is time."""
        if now >= self._stall_due:
            self._stall_due = now + _STALL_EVERY
            self._look_for_a_stall(now)
        if now >= self._stragglers_due:
            self._stragglers_due = now + _STRAGGLERS_EVERY
            self._look_for_stragglers(now)

    def _look_for_a_stall(self, now: float) -> None:
        job, health = self._job, self._job.health
        stall, before = job.stall, job.stall.since
        rule = StallRule(health.stall_factor, float(health.stall_seconds), restart=health.on_stall == "Restart")
        restart = stall.advance(
            now, time.time(), activity=self._activity(), process_round=job.rendezvous.round, rule=rule
        )
        if before is None and stall.since is not None:
            limit = stall.limit(rule)
            self._tell("Stalled", f"no step for {limit:.0f} s; the last one is {job.progress.step}", warning=True)
        elif before is not None and stall.since is None:
            self._tell("Resumed", "the training is over")
        if restart:
            what = f"starting all processes anew, {stall.restarts} of at most {MOST_RESTARTS} times in a row"
            self._tell("RestartedForStall", what, warning=True)
            job.rendezvous.restart_training()

    def _activity(self) -> TrainingActivity:
        job, rendezvous = self._job, self._job.rendezvous
        if not len(job.members) or rendezvous.finished_at is not None:
            return "finished"
        quiet = job.members.disconnected or any(member.suspected for member in job.members)
        if rendezvous.phase != "training" or rendezvous.confirmed_at is None or quiet:
            return "paused"
        return "training"

    def _look_for_stragglers(self, now: float) -> None:
        job, health = self._job, self._job.health
        changed = stragglers.update_stragglers(
            job.members, factor=health.straggler_factor, seconds=float(health.straggler_seconds), now=now
        )
        for member in changed:
            pod, step_times = member.identity.pod_name, member.step_times
            if step_times.straggler:
                bound = f"over {health.straggler_factor:g} times the median"
                self._tell(
                    "StragglerFound", f"{pod} takes {step_times.step_seconds:.3g} s for a step, {bound}", warning=True
                )
            else:
                self._tell("StragglerRecovered", f"{pod} takes {step_times.step_seconds:.3g} s for a step")
        job.stragglers = tuple(sorted(m.identity.pod_name for m in job.members if m.step_times.straggler))

    def _tell(self, reason: str, message: str, *, warning: bool = False) -> None:
        log.log(logging.WARNING if warning else logging.INFO, "%s: %s", reason, message)
        self._job.record_event(reason, message)
