"""Measures the throughput of the sizes the job has had, and decides on changes when the rules say so."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from elasticjob_master.core.autoscale import lowering, needs, pending, profile
from elasticjob_master.core.autoscale.container_resources import ContainerResources
from elasticjob_master.core.autoscale.decide import decide
from elasticjob_master.core.autoscale.decision import (
    RoleUsage,
    ScalingDecision,
    ScalingInputs,
    UnwrittenRole,
)
from elasticjob_master.core.autoscale.first_plan import first_plan
from elasticjob_master.core.autoscale.job_scaling import EndedPlan, JobScaling, RoleResources
from elasticjob_master.core.autoscale.measurement_window import MeasurementWindow
from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.core.autoscale.parameter_servers import SERVER_ROLES
from elasticjob_master.core.autoscale.scaling_memory import (
    ScalingMemory,
    adjusted_to,
    with_measurement,
    without_rates_since,
)
from elasticjob_master.core.autoscale.usage import UsageSamples
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.monitors.activity import (
    Activity,
    available_members,
    awaited,
    present_activity,
)
from elasticjob_master.monitors.training_rest import TrainingRest
from elasticjob_master.monitors.view import JobView

log = logging.getLogger(__name__)

_HORIZON = 3600.0
"""Seconds of training that a change can pay in, when the training does not report how long it will
take.
"""
_USAGE_SAMPLES = 20
"""In one measurement, at least."""
_LONGEST_USAGE_PAUSE = 15.0
_EARLY_PAUSE = 0.1
"""The part of a window between two looks at what it has measured so far."""


class AutoScaler:
    """Measures always; decides only while it is enabled and nothing else changes.

    Attributes:
        memory: what it has learned; stored with the master's state. Whoever calls a method stores it when it is another
            object afterwards.
        reason: of the latest decision that this master made, also of one that changes nothing. While nothing changes at
            a settled size, it is still that for which the size was settled or changed.
        profile: what earlier jobs needed, the oldest first; it is used before anything is measured of this one.
        decided_at: when, in seconds since the epoch; 0: not yet.
    """

    def __init__(self) -> None:
        self.memory = ScalingMemory()
        self._window = MeasurementWindow()
        self._usage = UsageSamples()
        self._usage_sampled_at = 0.0
        self._roles: dict[str, RoleUsage] = {}
        self._resources: Mapping[str, RoleResources] = {}
        """What the members may use, in the present window."""
        self._missing_since: float | None = None
        self._considered: JobScaling | None = None
        """What the last decision was made for: there is no other one until that or a measurement is
        new.
        """
        self.reason = ""
        self.profile: tuple[profile.ProfiledJob, ...] = ()
        self.decided_at = 0.0
        self._early_at = 0.0
        self._rest = TrainingRest()

    def restore(self, memory: ScalingMemory) -> None:
        """Go on with what an earlier master had learned."""
        self.memory = memory

    # --- plans
    # -------------------------------------------------------------------------------------------------------

    def plan_created(self, decision: ScalingDecision) -> None:
        """The plan of a decision exists."""
        self.memory = decision.memory
        self._considered = None

    def plan_not_created(self) -> None:
        """The plan of the latest decision could not be created: decide again."""
        self._considered = None

    def plan_adopted(self, requested_size: int | None) -> None:
        """A plan exists that an earlier master created and had no time to remember.

        Args:
            requested_size: the size it asks for; None when it is about something else.
        """
        memory = self.memory
        before = self.memory.asked
        if requested_size is not None:
            heading = (
                0
                if before is None or requested_size == before
                else 1
                if requested_size > before
                else -1
            )
            turned = memory.turned or (heading != 0 and memory.heading == -heading)
            memory = structs.replace(
                memory, asked=requested_size, heading=heading or memory.heading, turned=turned
            )
        self.memory = structs.replace(memory, moves=memory.moves + 1)

    def plan_ended(self, plan: EndedPlan, *, wall: float) -> None:
        """Learn, once, from the end of the latest plan."""
        memory = self.memory
        if plan.number <= memory.judged:
            return
        unmet = plan.phase in ("Failed", "PartiallySucceeded")
        if unmet:
            log.warning("ScalePlan %d was not fulfilled: %s", plan.number, plan.message)
        if unmet and (plan.requested_size is None or plan.resources):
            memory = pending.after_failed_resource_plan(memory, wall)
        if unmet and plan.requested_size is not None and plan.reached_size < plan.requested_size:
            memory = pending.after_unfulfilled_plan(memory, plan.reached_size, wall)
        elif plan.phase == "Succeeded" and plan.requested_size is not None:
            memory = pending.after_fulfilled_plan(memory, plan.requested_size)
        self.memory = structs.replace(memory, judged=plan.number)
        self._measure_anew()  # the present window has measured the time of the change
        self._considered = None

    def straggler_replaced(self, *, since: float, size: int) -> None:
        """A straggler has left.

        What was measured while it slowed the others down says nothing any more.
        """
        self._measure_anew()
        self._considered = None
        self.memory = without_rates_since(self.memory, since, size)

    # --- time
    # --------------------------------------------------------------------------------------------------------

    def world_changed(self) -> None:
        """Something has changed in the world; what was measured so far does not count."""
        self._window.restart()

    def tick(
        self,
        job: JobView,
        scaling: JobScaling | None,
        now: float,
        *,
        wall: float,
        plan_requested: bool,
    ) -> ScalingDecision | None:
        """Go on measuring.

        Return a decision that a plan is to be created of, when it is time for one.

        Args:
            job: what is measured.
            scaling: how the job may be scaled; None: not at all, or not known yet.
            now: the clock of all decisions.
            wall: seconds since the epoch.
            plan_requested: a plan of an earlier decision is being created.
        """
        progress = job.progress
        self._window.record_samples(
            world_round=progress.round, samples=progress.samples, step=progress.step, now=now
        )
        if scaling is None:
            return None
        may_decide = scaling.enabled and not scaling.plan_unfinished and not plan_requested
        available = available_members(job)
        if (
            may_decide
            and self.profile
            and (first := self._first_decision(job, scaling, now, wall)) is not None
        ):
            return self._decided(first, wall)
        if now - self._usage_sampled_at >= min(
            _LONGEST_USAGE_PAUSE, scaling.cooldown / _USAGE_SAMPLES
        ):
            self._usage_sampled_at = now
            self._sample_usage(scaling, available, wall)
        if awaited(job, scaling, available):
            self._measure_anew()
            return self._without_missing(job, scaling, available, now, wall, may_decide=may_decide)
        self._missing_since = None
        if scaling.roles != self._resources:
            # Changed in place: how much of the old resources was used, and how fast the job was,
            # says nothing now.
            self._resources = scaling.roles
            self._roles = {}
            self._measure_anew()
        if self._measure(scaling, available, now, wall) or self._rest.latest is None:
            self._rest.look(progress, self.memory, now, wall)
        if not may_decide:
            return None
        if self._window.windows and scaling != self._considered:
            self._considered = scaling
            return self._decided(
                decide(self.memory, self._inputs(job, scaling, now, wall, self.memory)), wall
            )
        return self._early_decision(job, scaling, available, now, wall)

    def _first_decision(
        self, job: JobView, scaling: JobScaling, now: float, wall: float
    ) -> ScalingDecision | None:
        """Return with what the job begins by its profile, as long as nothing was measured or decided."""
        memory = self.memory
        begun = memory.asked is not None or memory.rates
        known = all(
            len(each.indices) >= each.desired
            for each in scaling.roles.values()
            if each.is_unwritten
        )
        if begun or memory.moves or memory.judged or not known:
            return None
        peaks = profile.needed(self.profile)
        inputs = self._inputs(job, scaling, now, wall, structs.replace(memory, peaks=peaks))
        earlier = profile.latest_size(self.profile, scaling.role)
        return first_plan(peaks, earlier, memory, inputs, objective=profile.objective_text(scaling))

    def _measure_anew(self) -> None:
        """Drop what the present window has measured, of throughput and of use."""
        self._window.restart()
        self._usage.clear()

    def _early_decision(
        self, job: JobView, scaling: JobScaling, available: list[Member], now: float, wall: float
    ) -> ScalingDecision | None:
        """Return a decision to grow, when the first window of a size says clearly, before its end, that it pays."""
        if self._window.windows or now < self._early_at:
            return None
        measured = self._window.measured_so_far(cooldown=scaling.cooldown)
        if measured is None:
            return None
        self._early_at = now + _EARLY_PAUSE * scaling.cooldown
        memory = adjusted_to(self.memory, size=scaling.desired, setting=scaling.setting)
        memory = with_measurement(memory, scaling.desired, replace(measured, at=wall))
        memory = lowering.with_steady_use(memory, self._role_usage(scaling, available))
        inputs = replace(self._inputs(job, scaling, now, wall, memory), window_is_over=False)
        decision = decide(memory, inputs)
        return (
            self._decided(decision, wall)
            if decision.size is not None and decision.size > scaling.desired
            else None
        )

    def _measure(
        self, scaling: JobScaling, available: list[Member], now: float, wall: float
    ) -> bool:
        """Take what was measured into the memory, when a window is over.

        Return whether there was anything.
        """
        measured = self._window.observe(size=scaling.desired, cooldown=scaling.cooldown, now=now)
        if measured is None or measured.rate <= 0:
            return False
        measured = replace(measured, at=wall)
        memory = adjusted_to(self.memory, size=scaling.desired, setting=scaling.setting)
        if scaling.desired not in memory.rates:
            log.info("measured: %d members train %.1f samples/s", scaling.desired, measured.rate)
        self._roles = self._role_usage(scaling, available)
        memory = with_measurement(memory, scaling.desired, measured)
        self.memory = lowering.with_steady_use(memory, self._roles)
        self._usage.clear()
        self._considered = None
        return True

    def _decided(self, decision: ScalingDecision, wall: float) -> ScalingDecision | None:
        """Return the decision if a plan is to be created of it.

        Otherwise remember that nothing is to be done.
        """
        if not decision.changes_nothing:
            self._explain(decision, wall, log_it=True)
            return decision
        if self.memory.settled is None or not self.reason:
            self._explain(decision, wall, log_it=decision.memory.settled is not None)
        if decision.memory != self.memory:
            self.memory = decision.memory
        return None

    def _explain(self, decision: ScalingDecision, wall: float, *, log_it: bool) -> None:
        """Keep the reason of a decision for those who ask."""
        self.reason = decision.reason
        self.decided_at = wall
        if log_it:
            log.info("auto-scaling: %s", decision.reason)

    def _without_missing(
        self,
        job: JobView,
        scaling: JobScaling,
        available: list[Member],
        now: float,
        wall: float,
        *,
        may_decide: bool,
    ) -> ScalingDecision | None:
        """Fall back to the members that are there when the others have been missing for too long."""
        there = {
            member.identity.index for member in available if member.identity.role == scaling.role
        }
        missing = scaling.indices - there
        if not missing or job.rendezvous.phase != "training" or scaling.plan_unfinished:
            self._missing_since = None
            return None
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since < pending.MISSING_SECONDS or not may_decide:
            return None
        self._missing_since = now
        bounds = needs.bounds_by_need(scaling, self.memory.peaks)
        decision = pending.fall_back(
            self.memory, missing, size=scaling.desired, bounds=bounds, wall=wall
        )
        return None if decision is None else self._decided(decision, wall)

    def activity(
        self, job: JobView, scaling: JobScaling, now: float, *, plan_requested: bool
    ) -> Activity:
        """Return what it does at present; the arguments are those of `tick`."""
        return present_activity(self._window, job, scaling, now, plan_requested=plan_requested)

    # --- what the members use
    # ----------------------------------------------------------------------------------------

    def _sample_usage(self, scaling: JobScaling, available: list[Member], wall: float) -> None:
        """Look at what the members use now.

        Peaks count in every phase of the job, the rest while it is steady.
        """
        limits = {m.uid: _resources_of(scaling, m) for m in available}
        self._usage.add(available, limits, warm=self._window.measured_from is not None)
        for role in scaling.roles:
            uses = [member.usage for member in available if member.identity.role == role]
            if uses:
                cpu = max(use.cpu_cores for use in uses)
                used = max(use.memory_bytes for use in uses)
                self.memory = lowering.with_peaks(self.memory, role, cpu=cpu, used=used, wall=wall)

    def _role_usage(self, scaling: JobScaling, available: list[Member]) -> dict[str, RoleUsage]:
        """Return what the members have used in the window that is over, by role."""
        found: dict[str, RoleUsage] = {}
        for role, resources in scaling.roles.items():
            uses = [
                self._usage.usage_of(m, resources.of_member(m))
                for m in available
                if m.identity.role == role
            ]
            found[role] = RoleUsage(
                tuple(use for use in uses if use),
                resources.most_memory,
                resources.memory_bound,
                own_memory=resources.own_memory,
            )
        return found

    def objective(self, scaling: JobScaling) -> Objective:
        """Return what the size is chosen for.

        With what was left when a window last ended, if that matters.
        """
        wanted = scaling.objective
        return replace(wanted, rest=self._rest.latest) if wanted.kind == "Deadline" else wanted

    def _inputs(
        self, job: JobView, scaling: JobScaling, now: float, wall: float, memory: ScalingMemory
    ) -> ScalingInputs:
        self._rest.look(job.progress, self.memory, now, wall)
        return ScalingInputs(
            role=scaling.role,
            size=scaling.desired,
            bounds=needs.bounds_by_need(scaling, memory.peaks),
            objective=self.objective(scaling),
            horizon=training_left(job, now),
            wall=wall,
            roles=self._roles,
            servers=tuple(
                role for role in SERVER_ROLES if role in scaling.roles and role != scaling.role
            ),
            free_resources=scaling.free_resources,
            unwritten={
                role: UnwrittenRole(tuple(sorted(each.indices)), best_effort=not each.requests)
                for role, each in scaling.roles.items()
                if each.is_unwritten
            },
            server_counts={role: each.desired for role, each in scaling.roles.items()},
            most_servers=scaling.most_servers,
            setting=scaling.setting,
        )


def training_left(job: JobView, now: float) -> float:
    """Return the seconds of training in which a change can pay."""
    eta = job.progress.eta_seconds(now)
    return _HORIZON if eta is None else eta


def _resources_of(scaling: JobScaling, member: Member) -> ContainerResources:
    """Return what a member may use."""
    resources = scaling.roles.get(member.identity.role)
    return resources.of_member(member) if resources is not None else ContainerResources()
