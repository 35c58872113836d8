"""Acts on what the auto-scaler decides, and lets it learn what became of its plans."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from elasticjob_master.core.autoscale.belief import Belief, BeliefOfLatestEvidence, Evidence
from elasticjob_master.core.autoscale.decision import ScalingDecision
from elasticjob_master.core.autoscale.job_scaling import EndedPlan, JobScaling
from elasticjob_master.core.scale_plans import ScalePlans
from elasticjob_master.monitors.activity import Activity
from elasticjob_master.monitors.autoscaler import AutoScaler
from elasticjob_master.monitors.view import JobView

log = logging.getLogger(__name__)


class ScalingControl:
    """The controller's part that scales the job.

    Attributes:
        job_scaling: how the job may be scaled; None: not at all, or not known yet.
        on_decision: creates the plan of a decision about a role. `plan_created` or `plan_not_created` is its answer;
            until then there is no other decision.
    """

    def __init__(self, plans: ScalePlans, *, changed: Callable[[], None]) -> None:
        """Begin without any knowledge; `changed` is called when something that must be stored has changed."""
        self.plans = plans
        self.autoscaler = AutoScaler()
        self.job_scaling: JobScaling | None = None
        self.on_decision: Callable[[str, ScalingDecision], None] = lambda _role, _decision: None
        self._changed = changed
        self._belief = BeliefOfLatestEvidence()

    def tick(self, job: JobView, now: float) -> None:
        """Let the auto-scaler measure; have a plan created if it decides so."""
        autoscaler, scaling, memory = self.autoscaler, self.job_scaling, self.autoscaler.memory
        decision = autoscaler.tick(job, scaling, now, wall=time.time(), plan_requested=self.plans.requested)
        if autoscaler.memory is not memory:
            self._changed()
        if scaling is not None and decision is not None:
            self.plans.requested = True
            self.on_decision(scaling.role, decision)

    def activity(self, job: JobView, scaling: JobScaling, now: float) -> Activity:
        """Return what the auto-scaler does at present."""
        return self.autoscaler.activity(job, scaling, now, plan_requested=self.plans.requested)

    def belief(self, scaling: JobScaling) -> Belief:
        """Return what the measurements make believe of the sizes."""
        rates, noise = self.autoscaler.memory.measured_rates(), self.autoscaler.memory.noise
        return self._belief.form(Evidence(rates, noise, scaling.desired, scaling.bounds, scaling.objective))

    def plan_created(self, number: int, decision: ScalingDecision) -> None:
        """The plan of a decision exists."""
        self.plans.request_answered(used_number=number)
        self.autoscaler.plan_created(decision)
        self._changed()

    def plan_not_created(self, *, used_number: int | None = None) -> None:
        """The plan of a decision could not be created; `used_number`: because another plan has this number."""
        self.plans.request_answered(used_number=used_number)
        self.autoscaler.plan_not_created()

    def adopt_plan(self, number: int, requested_size: int | None) -> None:
        """A plan of the auto-scaler exists that an earlier master created and had no time to remember."""
        log.info("plan %d was made before this master started", number)
        self.plans.use_number(number)
        self.autoscaler.plan_adopted(requested_size)
        self._changed()

    def plan_ended(self, plan: EndedPlan) -> None:
        """A plan of the auto-scaler has ended; only from the latest one there is something to learn."""
        memory = self.autoscaler.memory
        if plan.number == self.plans.last_number:
            self.autoscaler.plan_ended(plan, wall=time.time())
        if self.autoscaler.memory is not memory:
            self._changed()
