"""Measures the throughput of the sizes of a job, and applies the rules of `core.autoscale`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from elasticjob_master.core.autoscale import needs, pending, profile, resource_rules
from elasticjob_master.core.autoscale.decide import decide
from elasticjob_master.core.autoscale.decision import (
    RoleUsage,
    ScalingDecision,
    ScalingInputs,
    UnwrittenRole,
)
from elasticjob_master.core.autoscale.job_scaling import EndedPlan, JobScaling, RoleResources
from elasticjob_master.core.autoscale.measurement_window import MeasurementWindow, UsageSamples
from elasticjob_master.core.autoscale.measurements import (
    Measurement,
    adjusted_to,
    with_measurement,
    with_nodes,
    without_rates_since,
)
from elasticjob_master.core.autoscale.objective import Objective
from elasticjob_master.core.autoscale.parameter_servers import SERVER_ROLES
from elasticjob_master.core.autoscale.profile import first_plan
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory
from elasticjob_master.core.autoscale.thresholds import THRESHOLDS
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
        at = _Moment(job, scaling, now, wall, may_decide, available_members(job))
        decision = self._next_decision(at)
        return None if decision is None else self._with_reason(decision, wall)

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

    def _next_decision(self, at: _Moment) -> ScalingDecision | None:
        """Measure; return a decision if it is time for one, also one that changes nothing."""
        scaling = at.scaling
        if at.may_decide and self.profile and (first := self._first_decision(at)):
            return first
        self._sample_usage(at)
        if missing_for_measurement(at.job, scaling, at.available):
            self._restart_measurement()
            return self._fall_back(at)
        self._missing_since = None
        if scaling.roles != self._resources:
            # Measurements with other resources do not count.
            self._resources = scaling.roles
            self._usage = {}
            self._restart_measurement()
        if self._finish_window(at) or self._rest.latest is None:
            self._rest.look(at.job.progress, self.memory, at.now, at.wall)
        if not at.may_decide:
            return None
        if not self._window.windows or scaling == self._decided_for:
            return self._early_decision(at)
        self._decided_for = scaling
        return decide(self.memory, self._inputs(at, self.memory))

    def _first_decision(self, at: _Moment) -> ScalingDecision | None:
        """Return what the job begins with by its profile, before anything is measured."""
        memory = self.memory
        search = memory.search
        begun = search.requested_size is not None or search.plans or memory.plans.last_ended
        unwritten = [each for each in at.scaling.roles.values() if each.is_unwritten]
        incomplete = any(len(each.indices) < each.desired for each in unwritten)
        if begun or memory.rates.by_size or incomplete:
            return None
        peaks = profile.most_used(self.profile)
        resources = structs.replace(memory.resources, peaks=peaks)
        inputs = self._inputs(at, structs.replace(memory, resources=resources))
        earlier = profile.latest_size(self.profile, at.scaling.role)
        return first_plan(peaks, earlier, memory, inputs, objective=at.scaling.objective.key)

    def _restart_measurement(self) -> None:
        """Drop what the present window has measured of throughput and use."""
        self._window.restart()
        self._samples.clear()

    def _finish_window(self, at: _Moment) -> bool:
        """Add the measurement to the memory if a window has ended; return whether one has."""
        size = at.scaling.desired
        noise = self.memory.rates.noise
        measured = self._window.observe(
            size=size, cooldown=at.scaling.cooldown, now=at.now, noise=noise
        )
        if measured is None:
            return False
        if size not in self.memory.rates.by_size:
            log.info("measured: %d members train %.1f samples/s", size, measured.rate)
        self._usage = self._samples.by_role(at.available, at.scaling.roles)
        self.memory = self._with_measurement(at, measured, self._usage)
        self._samples.clear()
        self._decided_for = None
        return True

    def _early_decision(self, at: _Moment) -> ScalingDecision | None:
        """Return a decision to grow, or to leave a poor size, that needs no whole window."""
        after_slow_start = self._window.slow_windows > 0  # a part of a window would show nothing
        if self._window.windows or after_slow_start or at.now < self._early_decision_at:
            return None
        measured = self._window.measured_so_far(cooldown=at.scaling.cooldown)
        if measured is None:
            return None
        self._early_decision_at = at.now + THRESHOLDS.piece * at.scaling.cooldown
        usage = self._samples.by_role(at.available, at.scaling.roles)
        memory = self._with_measurement(at, measured, usage)
        inputs = replace(self._inputs(at, memory), window_is_over=False, roles=usage)
        decision = decide(memory, inputs)
        return None if decision.size is None else decision

    def _with_measurement(
        self, at: _Moment, measured: Measurement, usage: Mapping[str, RoleUsage]
    ) -> ScalingMemory:
        """Return the memory with a measurement of the present size and its members' use."""
        scaling = at.scaling
        memory = adjusted_to(self.memory, size=scaling.desired, setting=scaling.setting)
        memory = with_measurement(memory, scaling.desired, replace(measured, at=at.wall))
        members = [each.identity for each in at.available if each.identity.role == scaling.role]
        memory = with_nodes(memory, [each.node_name for each in members])
        return resource_rules.with_window_cpu(memory, usage)

    def _with_reason(self, decision: ScalingDecision, wall: float) -> ScalingDecision | None:
        """Keep the reason of a decision; return the decision if it needs a plan."""
        keeps = decision.changes_nothing
        settled = decision.memory.search.settled_size is not None
        if not keeps or self.memory.search.settled_size is None or not self.reason:
            self.reason = decision.reason
            self.decided_at = wall
            if settled or not keeps:
                log.info("auto-scaling: %s", decision.reason)
        if not keeps:
            return decision
        self.memory = decision.memory
        return None

    def _fall_back(self, at: _Moment) -> ScalingDecision | None:
        """Return the decision to continue without members that have been missing for too long."""
        scaling = at.scaling
        members = [each.identity for each in at.available]
        missing = scaling.indices - {each.index for each in members if each.role == scaling.role}
        if not missing or at.job.rendezvous.phase != "training" or scaling.plan_unfinished:
            self._missing_since = None
            return None
        if self._missing_since is None:
            self._missing_since = at.now
        if at.now - self._missing_since < THRESHOLDS.pause_seconds or not at.may_decide:
            return None
        self._missing_since = at.now
        bounds = needs.bounds_by_need(scaling, self.memory.resources.peaks)
        size = scaling.desired
        return pending.fall_back(self.memory, missing, size=size, bounds=bounds, wall=at.wall)

    def _sample_usage(self, at: _Moment) -> None:
        """Sample what the members use, when it is time; peaks count in every phase of the job."""
        scaling = at.scaling
        pause = min(THRESHOLDS.sample_seconds, THRESHOLDS.piece * scaling.cooldown)
        if at.now - self._sampled_at < pause:
            return
        self._sampled_at = at.now
        warm = self._window.measured_from is not None
        self._samples.add(at.available, scaling.roles, warm=warm)
        trains = warm and self._window.size == scaling.desired
        for role in scaling.roles:
            uses = [each.usage for each in at.available if each.identity.role == role]
            if uses:
                self.memory = resource_rules.with_peaks(
                    self.memory,
                    role,
                    cpu=max(use.cpu_cores for use in uses),
                    used=max(use.memory_bytes for use in uses),
                    wall=at.wall,
                    size=scaling.desired if trains and role == scaling.role else None,
                )

    def _inputs(self, at: _Moment, memory: ScalingMemory) -> ScalingInputs:
        scaling = at.scaling
        self._rest.look(at.job.progress, self.memory, at.now, at.wall)
        roles = scaling.roles
        return ScalingInputs(
            role=scaling.role,
            size=scaling.desired,
            bounds=needs.bounds_by_need(scaling, memory.resources.peaks),
            objective=self.objective(scaling),
            horizon=training_left(at.job, at.now),
            wall=at.wall,
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


@dataclass(frozen=True)
class _Moment:
    """What `AutoScaler.tick` is given. `available` are the world's available members."""

    job: JobView
    scaling: JobScaling
    now: float
    wall: float
    may_decide: bool
    available: Sequence[Member]


def training_left(job: JobView, now: float) -> float:
    """Return the seconds of training in which a change can pay."""
    eta = job.progress.eta_seconds(now)
    return THRESHOLDS.hour if eta is None else eta
