"""Watches the throughput of the sizes the job has had, and asks for changes when the rules say so."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from elasticjob_master.core.autoscale import pending
from elasticjob_master.core.autoscale.container_resources import ContainerResources
from elasticjob_master.core.autoscale.decide import decide
from elasticjob_master.core.autoscale.decision import RoleUsage, ScalingDecision, ScalingInputs
from elasticjob_master.core.autoscale.job_scaling import EndedPlan, JobScaling
from elasticjob_master.core.autoscale.measurement_window import MeasurementWindow
from elasticjob_master.core.autoscale.parameter_servers import SERVER_ROLES
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory, adjusted_to, with_measurement
from elasticjob_master.core.autoscale.usage import UsageSamples
from elasticjob_master.core.rendezvous.members import Member

if TYPE_CHECKING:
    from elasticjob_master.controller import Controller

log = logging.getLogger(__name__)

_HORIZON = 3600.0
"""Seconds of training that a change can pay in, when the training does not tell how long it will take."""
_LOOKS = 20
_LONGEST_LOOK = 15.0


class AutoScaler:
    """Measures always; decides only while it is enabled and nothing else changes."""

    def __init__(self, job: Controller) -> None:
        self._job = job
        self._window = MeasurementWindow()
        self._looks = UsageSamples()
        self._looked_at = 0.0
        self._roles: dict[str, RoleUsage] = {}
        self._missing_since: float | None = None
        self._considered: JobScaling | None = None
        self._told = ""
        self.asking = False  # a plan is being made
        self.memory = ScalingMemory()
        self.plans_emitted = 0
        self.scaling: JobScaling | None = None
        self.ask: Callable[[str, ScalingDecision], None] | None = None

    # --- plans -------------------------------------------------------------------------------------------------------

    def answered(self, decision: ScalingDecision | None) -> None:
        """The plan that was asked for exists, or (None) could not be made."""
        self.asking, self._considered = False, None
        if decision is not None:
            self.memory = decision.memory
            self._job.changed()

    def adopt(self, number: int, wanted: int | None) -> None:
        """A plan exists that an earlier master made and had no time to remember."""
        log.info("plan %d was made before this master started", number)
        self.plans_emitted = number
        memory, before = self.memory, self.memory.asked
        if wanted is not None:
            heading = 0 if before is None or wanted == before else 1 if wanted > before else -1
            turned = memory.turned or (heading != 0 and memory.heading == -heading)
            memory = replace(memory, asked=wanted, heading=heading or memory.heading, turned=turned)
        self.memory = replace(memory, moves=memory.moves + 1)
        self._job.changed()

    def ended(self, plan: EndedPlan) -> None:
        """Learn, once, from the end of the latest plan."""
        if plan.number != self.plans_emitted or plan.number <= self.memory.judged:
            return
        memory, wall = self.memory, time.time()
        unmet = plan.phase in ("Failed", "PartiallySucceeded")
        if unmet:
            log.warning("ScalePlan %d was not after_fulfilled_plan: %s", plan.number, plan.message)
        if unmet and plan.requested_size is None:
            memory = pending.after_failed_resource_plan(memory, wall)
        elif unmet and plan.requested_size is not None and plan.reached_size < plan.requested_size:
            memory = pending.after_unfulfilled_plan(memory, plan.reached_size, wall)
        elif plan.phase == "Succeeded" and plan.requested_size is not None:
            memory = pending.after_fulfilled_plan(memory, plan.requested_size)
        self.memory = replace(memory, judged=plan.number)
        self._considered = None
        self._job.changed()

    # --- time --------------------------------------------------------------------------------------------------------

    def disturbed(self) -> None:
        """Something has changed in the world; what was measured so far does not count."""
        self._window.restart()

    def tick(self, now: float) -> None:
        """Go on measuring; ask for a change when it is time."""
        scaling, progress = self.scaling, self._job.progress
        self._window.record_samples(world_round=progress.round, samples=progress.samples, now=now)
        if scaling is None:
            return
        here = self._here()
        if not self._steady(scaling, here):
            self._window.restart()
            self._looks.clear()
            self._watch_missing(scaling, here, now)
            return
        self._missing_since = None
        self._look(scaling, here, now)
        measured = self._window.observe(
            size=scaling.desired, samples=progress.samples, cooldown=scaling.cooldown, now=now
        )
        if measured is not None and measured.rate > 0:
            memory = adjusted_to(self.memory, size=scaling.desired, setting=scaling.setting)
            if scaling.desired not in memory.rates:
                log.info("measured: %d members train %.1f samples/s", scaling.desired, measured.rate)
            self.memory = with_measurement(memory, scaling.desired, measured)
            self._roles = self._use(scaling, here)
            self._looks.clear()
            self._considered = None
            self._job.changed()
        if self._window.windows and scaling != self._considered and self._may_ask(scaling):
            self._considered = scaling
            self._tell(scaling, decide(self.memory, self._situation(scaling, now)))

    def _may_ask(self, scaling: JobScaling) -> bool:
        return scaling.enabled and not scaling.plan_unfinished and not self.asking and self.ask is not None

    def _tell(self, scaling: JobScaling, decision: ScalingDecision) -> None:
        """Ask for what was decided, or remember that nothing is to be done."""
        if decision.changes_nothing:
            if decision.memory != self.memory:
                self.memory = decision.memory
                self._job.changed()
            if decision.reason != self._told and decision.memory.settled is not None:
                log.info("auto-scaling: %s", decision.reason)
            self._told = decision.reason
        elif self.ask is not None:
            log.info("auto-scaling: %s", decision.reason)
            self.asking = True
            self.ask(scaling.role, decision)

    def _watch_missing(self, scaling: JobScaling, here: list[Member], now: float) -> None:
        """Fall back to those who are there when the others have been missing for too long."""
        job = self._job
        there = {member.identity.index for member in here if member.identity.role == scaling.role}
        missing = scaling.indices - there
        if not missing or job.rendezvous.phase != "training" or scaling.plan_unfinished:
            self._missing_since = None
            return
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since < pending.MISSING_SECONDS or not self._may_ask(scaling):
            return
        self._missing_since = now
        decision = pending.fall_back(
            self.memory, missing, size=scaling.desired, bounds=scaling.bounds, wall=time.time()
        )
        if decision is not None:
            self._tell(scaling, decision)

    # --- what there is -----------------------------------------------------------------------------------------------

    def _here(self) -> list[Member]:
        members = self._job.members
        return [m for m in map(members.get, self._job.rendezvous.world) if m is not None and m.available]

    def _steady(self, scaling: JobScaling, here: list[Member]) -> bool:
        """The whole job trains at its size and everything is in place."""
        job, rendezvous = self._job, self._job.rendezvous
        if rendezvous.phase != "training" or rendezvous.confirmed_at is None or job.members.disconnected:
            return False
        if job.progress.round != rendezvous.round or not job.progress.reporter_count():
            return False
        return sum(m.identity.role == scaling.role for m in here) == scaling.desired

    def _look(self, scaling: JobScaling, here: list[Member], now: float) -> None:
        if now - self._looked_at >= min(_LONGEST_LOOK, scaling.cooldown / _LOOKS):
            self._looked_at = now
            self._looks.add(here, {m.uid: self._share(scaling, m) for m in here})

    def _share(self, scaling: JobScaling, member: Member) -> ContainerResources:
        shares = scaling.roles.get(member.identity.role)
        return shares.of_member(member) if shares is not None else ContainerResources()

    def _use(self, scaling: JobScaling, here: list[Member]) -> dict[str, RoleUsage]:
        """Return what the members have used in the window that is over, by role."""
        found: dict[str, RoleUsage] = {}
        for role, shares in scaling.roles.items():
            uses = [self._looks.usage_of(m, shares.of_member(m)) for m in here if m.identity.role == role]
            found[role] = RoleUsage(tuple(use for use in uses if use), shares.most_memory, shares.memory_bound)
        return found

    def _situation(self, scaling: JobScaling, now: float) -> ScalingInputs:
        eta = self._job.progress.eta_seconds(now)
        return ScalingInputs(
            role=scaling.role,
            size=scaling.desired,
            bounds=scaling.bounds,
            objective=scaling.objective,
            horizon=_HORIZON if eta is None else eta,
            wall=time.time(),
            roles=self._roles,
            servers=tuple(role for role in SERVER_ROLES if role in scaling.roles and role != scaling.role),
            free_resources=scaling.free_resources,
            setting=scaling.setting,
        )
