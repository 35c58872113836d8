"""Acts on what the auto-scaler and the replacer of stragglers decide, and tells them what became of their plans."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from elasticjob_master.core.autoscale import needs
from elasticjob_master.core.autoscale.belief import Belief, BeliefOfLatestEvidence, Evidence
from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision
from elasticjob_master.core.autoscale.job_scaling import EndedPlan, JobScaling
from elasticjob_master.core.scale_plans import ScalePlans
from elasticjob_master.monitors.activity import Activity
from elasticjob_master.monitors.autoscaler import AutoScaler, training_left
from elasticjob_master.monitors.findings import NewEvent
from elasticjob_master.monitors.straggler_replacer import StragglerReplacer
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
        """Begin without any knowledge.

        `changed` is called when something that must be stored has changed.
        """
        self.plans = plans
        self.autoscaler = AutoScaler()
        self.replacer = StragglerReplacer()
        self.job_scaling: JobScaling | None = None
        self.on_decision: Callable[[str, ScalingDecision], None] = lambda _role, _decision: None
        self._changed = changed
        self._belief = BeliefOfLatestEvidence()

    def tick(self, job: JobView, now: float) -> NewEvent | None:
        """Let the auto-scaler measure; have a plan created if one is decided on.

        Return an event that is new.
        """
        autoscaler = self.autoscaler
        scaling = self.job_scaling
        memory = self.autoscaler.memory
        why_not = self.replacer.why_not
        self._replace_straggler(job, now)
        decision = autoscaler.tick(
            job, scaling, now, wall=time.time(), plan_requested=self.plans.requested
        )
        if autoscaler.memory is not memory:
            self._changed()
        if scaling is not None and decision is not None:
            self.plans.requested = True
            self.on_decision(scaling.role, decision)
        news = self.replacer.why_not
        return NewEvent("StragglerNotReplaced", news) if news and news != why_not else None

    def _replace_straggler(self, job: JobView, now: float) -> None:
        """Have a straggler replaced if it is time.

        It goes first, as what is measured with it is worth nothing.
        """
        scaling = self.job_scaling
        cost = self.autoscaler.memory.cost
        under_way = self.plans.requested or bool(self.plans.unfinished())
        verdict = self.replacer.tick(
            job,
            now,
            wall=time.time(),
            plan_under_way=under_way or (scaling is not None and scaling.plan_unfinished),
            cost=cost,
            horizon=training_left(job, now),
        )
        if verdict is not None and verdict.replace is not None:
            log.info("straggler: %s", verdict.reason)
            decision = ScalingDecision(
                verdict.reason, self.autoscaler.memory, straggler=verdict.replace
            )
            self.plans.requested = True
            self.on_decision(verdict.replace.slowness.member.identity.role, decision)

    def activity(self, job: JobView, scaling: JobScaling, now: float) -> Activity:
        """Return what the auto-scaler does at present."""
        return self.autoscaler.activity(job, scaling, now, plan_requested=self.plans.requested)

    def belief(self, scaling: JobScaling) -> Belief:
        """Return what the measurements make believe of the sizes."""
        rates = self.autoscaler.memory.measured_rates()
        noise = self.autoscaler.memory.noise
        objective = self.autoscaler.objective(scaling)
        return self._belief.form(
            Evidence(rates, noise, scaling.desired, self.bounds(scaling), objective)
        )

    def bounds(self, scaling: JobScaling) -> Bounds:
        """Return the sizes that may be requested, with what is known of the members' needs."""
        return needs.bounds_by_need(scaling, self.autoscaler.memory.peaks)

    def plan_created(self, number: int, decision: ScalingDecision) -> None:
        """The plan of a decision exists."""
        self.plans.request_answered(used_number=number)
        if decision.straggler is not None:
            self.replacer.plan_created(number, decision.straggler, wall=time.time())
        else:
            self.autoscaler.plan_created(decision)
        self._changed()

    def plan_not_created(self, *, used_number: int | None = None) -> None:
        """The plan of a decision could not be created.

        `used_number`: because another plan has this number.
        """
        self.plans.request_answered(used_number=used_number)
        self.autoscaler.plan_not_created()

    def adopt_plan(self, number: int, requested_size: int | None) -> None:
        """A plan of the auto-scaler exists that an earlier master created and had no time to remember."""
        log.info("plan %d was made before this master started", number)
        self.plans.use_number(number)
        self.autoscaler.plan_adopted(requested_size)
        self._changed()

    def adopt_replacement(self, number: int, pod: str, job: JobView) -> None:
        """A plan that replaces a straggler exists, which an earlier master had no time to remember."""
        log.info("plan %d, which replaces %s, was made before this master started", number, pod)
        self.plans.use_number(number)
        member = next((member for member in job.members if member.identity.pod_name == pod), None)
        self.replacer.plan_adopted(number, pod, member, wall=time.time())
        self._changed()

    def plan_ended(self, plan: EndedPlan) -> None:
        """A plan of the master has ended; only from the latest one there is something to learn."""
        before = (self.autoscaler.memory, self.replacer.memory)
        if plan.number != self.plans.last_number:
            return
        if plan.number == self.replacer.memory.plan:
            self._replacement_ended(plan)
        else:
            self.autoscaler.plan_ended(plan, wall=time.time())
        if before[0] is not self.autoscaler.memory or before[1] is not self.replacer.memory:
            self._changed()

    def _replacement_ended(self, plan: EndedPlan) -> None:
        replaced = self.replacer.plan_ended(plan.replacement, wall=time.time())
        if replaced is not None and self.job_scaling is not None:
            self.autoscaler.straggler_replaced(since=replaced.since, size=self.job_scaling.desired)
