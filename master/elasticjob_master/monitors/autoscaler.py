"""Measures the throughput of the sizes the job has had, and applies the rules of `core.autoscale`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
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
from elasticjob_master.core.autoscale.measurements import (
    Measurement,
    adjusted_to,
    with_measurement,
    with_nodes,
    without_rates_since,
)
from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.core.autoscale.parameter_servers import SERVER_ROLES
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS
from elasticjob_master.core.autoscale.usage import UsageSamples
from elasticjob_master.core.rendezvous.members import Member
from elasticjob_master.monitors.activity import (
    Activity,
    available_members,
    missing_for_measurement,
    present_activity,
)
from elasticjob_master.monitors.training_rest import TrainingRest
from elasticjob_master.monitors.view import JobView

log = logging.getLogger(__name__)


class AutoScaler:
    """Measures always; decides only while it is enabled and nothing else changes.

    Attributes:
        memory: what it has learned; the caller stores it whenever it differs after a call.
        reason: the reason of this master's latest decision, also of one that changes nothing. At a
            settled size it remains the reason for which the search settled.
        decided_at: when that decision was made, in seconds since the epoch; 0 before the first.
        profile: what earlier jobs needed, the oldest first.
    """

    def __init__(self) -> None:
        self.memory = ScalingMemory()
        self.reason = ""
        self.decided_at = 0.0
        self.profile: tuple[profile.ProfiledJob, ...] = ()
        self._window = MeasurementWindow()
        self._samples = UsageSamples()
        self._sampled_at = 0.0
        self._usage: dict[str, RoleUsage] = {}
        self._resources: Mapping[str, RoleResources] = {}
        self._missing_since: float | None = None
        self._decided_for: JobScaling | None = None
        self._early_decision_at = 0.0
        self._rest = TrainingRest()

    def restore(self, memory: ScalingMemory) -> None:
        """Continue with what an earlier master has learned."""
        self.memory = memory

    def plan_created(self, decision: ScalingDecision) -> None:
        """Keep the memory of a decision whose plan exists."""
        self.memory = decision.memory
        self._decided_for = None

    def plan_not_created(self) -> None:
        """Decide again, because the plan of the latest decision could not be created."""
        self._decided_for = None

    def plan_adopted(self, requested_size: int | None) -> None:
        """Take over a plan that an earlier master created but did not remember.

        Args:
            requested_size: the size that it requests; None if it does not change the size.
        """
        search = self.memory.search
        size = search.requested_size if requested_size is None else requested_size
        self.memory = self.memory.with_search(requested_size=size, plans=search.plans + 1)

    def plan_ended(self, plan: EndedPlan, *, wall: float) -> None:
        """Learn from the end of the latest plan, once."""
        memory = self.memory
        if plan.number <= memory.plans.last_ended:
            return
        if plan.phase in ("Failed", "PartiallySucceeded"):
            log.warning("ScalePlan %d was not fulfilled: %s", plan.number, plan.message)
            if plan.requested_size is None or plan.resources:
                memory = pending.after_failed_resource_plan(memory, wall)
            if plan.requested_size is not None and plan.reached_size < plan.requested_size:
                memory = pending.after_unfulfilled_plan(memory, plan.reached_size, wall)
        elif plan.phase == "Succeeded" and plan.requested_size is not None:
            memory = pending.after_fulfilled_plan(memory, plan.requested_size)
        ended = structs.replace(memory.plans, last_ended=plan.number)
        self.memory = structs.replace(memory, plans=ended)
        # The present window includes the time of the change.
        self._restart_measurement()
        self._decided_for = None

    def straggler_replaced(self, *, since: float, size: int) -> None:
        """Drop the measurements of the time when a straggler slowed the other members down."""
        self._restart_measurement()
        self._decided_for = None
        self.memory = without_rates_since(self.memory, since, size)

    def world_changed(self) -> None:
        """Drop the present window, because the world has changed."""
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
        """Continue to measure; return a decision when it is time to create a plan.

        Args:
            job: what is measured.
            scaling: how the job may be scaled; None if it may not, or if that is unknown.
            now: the clock of all decisions.
            wall: seconds since the epoch.
            plan_requested: the plan of an earlier decision is being created.
        """
        progress = job.progress
        self._window.record_samples(
            world_round=progress.round, samples=progress.samples, step=progress.step, now=now
        )
        if scaling is None:
            return None
        may_decide = scaling.enabled and not scaling.plan_unfinished and not plan_requested
        if may_decide and self.profile:
            first = self._first_decision(job, scaling, now, wall)
            if first is not None:
                return self._with_reason(first, wall)
        available = available_members(job)
        self._sample_usage(scaling, available, now, wall)
        if missing_for_measurement(job, scaling, available):
            self._restart_measurement()
            decision = self._fall_back(job, scaling, available, now, wall, may_decide=may_decide)
            return None if decision is None else self._with_reason(decision, wall)
        self._missing_since = None
        if scaling.roles != self._resources:
            # Measurements with other resources do not count.
            self._resources = scaling.roles
            self._usage = {}
            self._restart_measurement()
        if self._finish_window(scaling, available, now, wall) or self._rest.latest is None:
            self._rest.look(progress, self.memory, now, wall)
        if not may_decide:
            return None
        if self._window.windows and scaling != self._decided_for:
            self._decided_for = scaling
            decision = decide(self.memory, self._inputs(job, scaling, now, wall, self.memory))
            return self._with_reason(decision, wall)
        return self._early_decision(job, scaling, available, now, wall)

    def activity(
        self, job: JobView, scaling: JobScaling, now: float, *, plan_requested: bool
    ) -> Activity:
        """Return what the auto-scaler does at present; the arguments are those of `tick`."""
        return present_activity(self._window, job, scaling, now, plan_requested=plan_requested)

    def objective(self, scaling: JobScaling) -> Objective:
        """Return what the size is chosen for, with the training that remains for a finish time."""
        objective = scaling.objective
        if objective.kind != "Deadline":
            return objective
        return replace(objective, rest=self._rest.latest)

    def _first_decision(
        self, job: JobView, scaling: JobScaling, now: float, wall: float
    ) -> ScalingDecision | None:
        """Return what the job begins with by its profile, before anything is measured or decided."""
        memory = self.memory
        search = memory.search
        begun = search.requested_size is not None or search.plans or memory.plans.last_ended
        if begun or memory.rates.by_size:
            return None
        unwritten = [each for each in scaling.roles.values() if each.is_unwritten]
        if any(len(each.indices) < each.desired for each in unwritten):
            return None
        peaks = profile.most_used(self.profile)
        resources = structs.replace(memory.resources, peaks=peaks)
        known = structs.replace(memory, resources=resources)
        inputs = self._inputs(job, scaling, now, wall, known)
        earlier = profile.latest_size(self.profile, scaling.role)
        return first_plan(peaks, earlier, memory, inputs, objective=scaling.objective.key)

    def _restart_measurement(self) -> None:
        """Drop what the present window has measured of throughput and use."""
        self._window.restart()
        self._samples.clear()

    def _finish_window(
        self, scaling: JobScaling, available: Sequence[Member], now: float, wall: float
    ) -> bool:
        """Add the measurement to the memory if a window has ended; return whether one has."""
        measured = self._window.observe(
            size=scaling.desired,
            cooldown=scaling.cooldown,
            now=now,
            noise=self.memory.rates.noise,
        )
        if measured is None or measured.rate <= 0:
            return False
        if scaling.desired not in self.memory.rates.by_size:
            rate = measured.rate
            log.info("measured: %d members train %.1f samples/s", scaling.desired, rate)
        self._usage = self._role_usage(scaling, available)
        self.memory = self._with_measurement(scaling, measured, available, self._usage, wall)
        self._samples.clear()
        self._decided_for = None
        return True

    def _early_decision(
        self,
        job: JobView,
        scaling: JobScaling,
        available: Sequence[Member],
        now: float,
        wall: float,
    ) -> ScalingDecision | None:
        """Return a decision to grow, or to leave a poor size, that needs no whole window."""
        after_slow_start = self._window.slow_windows > 0  # a part of a window would show nothing
        if self._window.windows or after_slow_start or now < self._early_decision_at:
            return None
        measured = self._window.measured_so_far(cooldown=scaling.cooldown)
        if measured is None:
            return None
        self._early_decision_at = now + THRESHOLDS.piece * scaling.cooldown
        usage = self._role_usage(scaling, available)
        memory = self._with_measurement(scaling, measured, available, usage, wall)
        inputs = self._inputs(job, scaling, now, wall, memory)
        decision = decide(memory, replace(inputs, window_is_over=False, roles=usage))
        if decision.size is None:
            return None
        return self._with_reason(decision, wall)

    def _with_measurement(
        self,
        scaling: JobScaling,
        measured: Measurement,
        available: Sequence[Member],
        usage: Mapping[str, RoleUsage],
        wall: float,
    ) -> ScalingMemory:
        """Return the memory with a measurement of the present size and its members' use."""
        size = scaling.desired
        memory = adjusted_to(self.memory, size=size, setting=scaling.setting)
        memory = with_measurement(memory, size, replace(measured, at=wall))
        identities = [member.identity for member in available]
        names = [each.node_name for each in identities if each.role == scaling.role]
        memory = with_nodes(memory, names)
        return lowering.with_window_cpu(memory, usage)

    def _with_reason(self, decision: ScalingDecision, wall: float) -> ScalingDecision | None:
        """Keep the reason of a decision; return the decision if it needs a plan."""
        if not decision.changes_nothing:
            self._explain(decision, wall, log_it=True)
            return decision
        if self.memory.search.settled_size is None or not self.reason:
            settled = decision.memory.search.settled_size is not None
            self._explain(decision, wall, log_it=settled)
        self.memory = decision.memory
        return None

    def _explain(self, decision: ScalingDecision, wall: float, *, log_it: bool) -> None:
        self.reason = decision.reason
        self.decided_at = wall
        if log_it:
            log.info("auto-scaling: %s", decision.reason)

    def _fall_back(
        self,
        job: JobView,
        scaling: JobScaling,
        available: Sequence[Member],
        now: float,
        wall: float,
        *,
        may_decide: bool,
    ) -> ScalingDecision | None:
        """Return the decision to continue without members that have been missing for too long."""
        present = {
            member.identity.index for member in available if member.identity.role == scaling.role
        }
        missing = scaling.indices - present
        if not missing or job.rendezvous.phase != "training" or scaling.plan_unfinished:
            self._missing_since = None
            return None
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since < THRESHOLDS.missing_seconds or not may_decide:
            return None
        self._missing_since = now
        memory = self.memory
        bounds = needs.bounds_by_need(scaling, memory.resources.peaks)
        return pending.fall_back(memory, missing, size=scaling.desired, bounds=bounds, wall=wall)

    def _sample_usage(
        self, scaling: JobScaling, available: Sequence[Member], now: float, wall: float
    ) -> None:
        """Sample what the members use, when it is time; peaks count in every phase of the job."""
        pause = min(THRESHOLDS.sample_seconds, THRESHOLDS.piece * scaling.cooldown)
        if now - self._sampled_at < pause:
            return
        self._sampled_at = now
        by_role: dict[str, list[Member]] = {}
        limits: dict[str, ContainerResources] = {}
        for member in available:
            resources = scaling.roles.get(member.identity.role)
            if resources is not None:
                by_role.setdefault(member.identity.role, []).append(member)
                limits[member.uid] = resources.of_member(member)
        sampled = [member for members in by_role.values() for member in members]
        warm = self._window.measured_from is not None
        self._samples.add(sampled, limits, warm=warm)
        trains = warm and self._window.size == scaling.desired
        for role, members in by_role.items():
            cpu = max(member.usage.cpu_cores for member in members)
            used = max(member.usage.memory_bytes for member in members)
            size = scaling.desired if trains and role == scaling.role else None
            self.memory = lowering.with_peaks(
                self.memory, role, cpu=cpu, used=used, wall=wall, size=size
            )

    def _role_usage(self, scaling: JobScaling, available: Sequence[Member]) -> dict[str, RoleUsage]:
        """Return what the members have used in the window that has ended, by role."""
        found: dict[str, RoleUsage] = {}
        for role, resources in scaling.roles.items():
            uses = [
                self._samples.usage_of(member, resources.of_member(member))
                for member in available
                if member.identity.role == role
            ]
            found[role] = RoleUsage(
                tuple(use for use in uses if use),
                resources.most_memory,
                resources.memory_bound,
                own_memory=resources.own_memory,
            )
        return found

    def _inputs(
        self, job: JobView, scaling: JobScaling, now: float, wall: float, memory: ScalingMemory
    ) -> ScalingInputs:
        self._rest.look(job.progress, self.memory, now, wall)
        roles = scaling.roles
        return ScalingInputs(
            role=scaling.role,
            size=scaling.desired,
            bounds=needs.bounds_by_need(scaling, memory.resources.peaks),
            objective=self.objective(scaling),
            horizon=training_left(job, now),
            wall=wall,
            roles=self._usage,
            servers=tuple(role for role in SERVER_ROLES if role in roles and role != scaling.role),
            free_resources=scaling.free_resources,
            unwritten={
                role: UnwrittenRole(tuple(sorted(each.indices)), best_effort=not each.requests)
                for role, each in roles.items()
                if each.is_unwritten
            },
            server_counts={role: each.desired for role, each in roles.items()},
            most_servers=scaling.most_servers,
            setting=scaling.setting,
            window_seconds=scaling.cooldown,
            rate_rises=self._window.rises,
        )


def training_left(job: JobView, now: float) -> float:
    """Return the seconds of training in which a change can pay."""
    eta = job.progress.eta_seconds(now)
    return THRESHOLDS.hour if eta is None else eta
