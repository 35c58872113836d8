"""The life of a ScalePlan that the master wants, from the wish to the plan's observed end.

1. `tick`: the auto-scaler or the replacer of stragglers decides, and the decision becomes the
   `wish`. While there is a wish there is no other decision.
2. The cluster shell creates the ScalePlan of the wish under the wish's number, and calls
   `plan_created` or `plan_not_created`. Either ends the wish.
3. `observe`: the shell has seen the plan. A plan that this master does not remember is adopted: an
   earlier master created it, or the answer to its creation was lost.
4. `observe`: the plan has ended. The auto-scaler or the replacer learns from that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elasticjob_api.scaleplan import ScalePlan

from elasticjob_master.core.autoscale import needs
from elasticjob_master.core.autoscale.belief import Belief, BeliefOfLatestEvidence, Evidence
from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision
from elasticjob_master.core.autoscale.job_scaling import EndedPlan, JobScaling
from elasticjob_master.core.history import NewEvent
from elasticjob_master.job_facts import ObservedPlan, PlanFacts, latest_plans
from elasticjob_master.monitors.activity import Activity
from elasticjob_master.monitors.autoscaler import AutoScaler, training_left
from elasticjob_master.monitors.straggler_replacer import StragglerReplacer
from elasticjob_master.monitors.view import JobView

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlanWish:
    """A ScalePlan that the master wants.

    Attributes:
        number: that the plan gets in its name.
        role: the role that the decision changes.
    """

    number: int
    role: str
    decision: ScalingDecision


class ScalingControl:
    """The controller's part that scales the job.

    Attributes:
        job_scaling: how the job may be scaled; None: not at all, or not known yet.
        wish: the plan that is wanted and not created yet.
        last_number: the highest number of a plan that this or an earlier master has used.
        latest_plans: the plans of the job that users are shown.
    """

    def __init__(self, *, changed: Callable[[], None]) -> None:
        """Begin without any knowledge.

        `changed` is called when something that must be stored has changed.
        """
        self.autoscaler = AutoScaler()
        self.replacer = StragglerReplacer()
        self.job_scaling: JobScaling | None = None
        self.wish: PlanWish | None = None
        self.last_number = 0
        self.latest_plans: Sequence[ScalePlan] = ()
        self._plans: Sequence[ObservedPlan] = ()
        self._changed = changed
        self._belief = BeliefOfLatestEvidence()

    # --- the wish

    def tick(self, view: JobView, now: float) -> NewEvent | None:
        """Let the auto-scaler and the replacer decide; return an event that is new."""
        memory = self.autoscaler.memory
        why_not = self.replacer.why_not
        self._replace_straggler(view, now)
        decision = self.autoscaler.tick(
            view,
            self.job_scaling,
            now,
            wall=time.time(),
            plan_requested=self.wish is not None,
        )
        if self.autoscaler.memory != memory:
            self._changed()
        if self.job_scaling is not None and decision is not None:
            self._want(self.job_scaling.role, decision)
        reason = self.replacer.why_not
        if reason and reason != why_not:
            return NewEvent("StragglerNotReplaced", reason)
        return None

    def _replace_straggler(self, view: JobView, now: float) -> None:
        """Want a straggler replaced if it is time.

        This comes before the auto-scaler's decision, because measurements with a straggler are
        worth nothing.
        """
        scaling = self.job_scaling
        unfinished = self.wish is not None or any(plan.unfinished for plan in self._plans)
        verdict = self.replacer.tick(
            view,
            now,
            wall=time.time(),
            plan_under_way=unfinished or (scaling is not None and scaling.plan_unfinished),
            cost=self.autoscaler.memory.rates.rescale_seconds,
            horizon=training_left(view, now),
        )
        if verdict is not None and verdict.replace is not None:
            straggler = verdict.replace.slowness.member.identity
            log.info("straggler: %s", verdict.reason, extra={"member": straggler.pod_name})
            decision = ScalingDecision(
                verdict.reason, self.autoscaler.memory, straggler=verdict.replace
            )
            self._want(straggler.role, decision)

    def _want(self, role: str, decision: ScalingDecision) -> None:
        self.wish = PlanWish(self.last_number + 1, role, decision)

    def use_number(self, number: int) -> None:
        """Never use this number, or a lower one, for another plan."""
        self.last_number = max(self.last_number, number)

    # --- the creation

    def plan_created(self, wish: PlanWish) -> None:
        """End the wish, whose plan exists now."""
        self.wish = None
        self.use_number(wish.number)
        if wish.decision.straggler is not None:
            straggler = wish.decision.straggler
            self.replacer.plan_created(wish.number, straggler, wall=time.time())
        else:
            self.autoscaler.plan_created(wish.decision)
        self._changed()

    def plan_not_created(
        self, view: JobView, wish: PlanWish, *, number_in_use: bool = False
    ) -> None:
        """End the wish, unless its plan is found among those of the cluster.

        `number_in_use`: a plan has this number, maybe of an earlier job of the same name.
        """
        self.wish = None
        self._learn(view)
        if number_in_use:
            self.use_number(wish.number)
        self.autoscaler.plan_not_created()

    # --- the plans of the cluster

    def observe(self, view: JobView, facts: PlanFacts) -> list[ScalePlan]:
        """Learn from the plans of the job as they are now; return those that have changed."""
        before = {each.plan.metadata.uid: each.plan for each in self._plans}
        plans = [each.plan for each in facts.plans]
        changed = [plan for plan in plans if before.get(plan.metadata.uid) is not plan]
        if changed or len(plans) != len(before):
            self.latest_plans = latest_plans(plans)
        self._plans = facts.plans
        self.job_scaling = facts.scaling
        self._learn(view)
        return changed

    def _learn(self, view: JobView) -> None:
        """Adopt unknown plans of earlier masters, and learn from those that have ended."""
        own = [(each.number, each) for each in self._plans if each.number]
        for number, observed in sorted(own, key=lambda item: item[0]):
            # While there is a wish, the plan with its number is probably the wished one.
            if number > self.last_number and self.wish is None:
                self._adopt(view, number, observed)
            if observed.ended is not None:
                self.plan_ended(observed.ended)

    def _adopt(self, view: JobView, number: int, observed: ObservedPlan) -> None:
        """Remember a plan that a master created and did not remember."""
        self.use_number(number)
        pod = observed.replaced_pod
        if pod is not None:
            text = "plan %d, which replaces %s, was made before this master started"
            log.info(text, number, pod, extra={"member": pod})
            member = next((m for m in view.members if m.identity.pod_name == pod), None)
            self.replacer.plan_adopted(number, pod, member, wall=time.time())
        else:
            log.info("plan %d was made before this master started", number)
            self.autoscaler.plan_adopted(observed.requested_size)
        self._changed()

    def plan_ended(self, plan: EndedPlan) -> None:
        """Learn from the end of the latest plan; an earlier one teaches nothing."""
        if plan.number != self.last_number:
            return
        memory = self.autoscaler.memory
        replacements = self.replacer.memory
        if plan.number == replacements.plan:
            self._replacement_ended(plan)
        else:
            self.autoscaler.plan_ended(plan, wall=time.time())
        if (memory, replacements) != (self.autoscaler.memory, self.replacer.memory):
            self._changed()

    def _replacement_ended(self, plan: EndedPlan) -> None:
        replaced = self.replacer.plan_ended(plan.replacement, wall=time.time())
        if replaced is not None and self.job_scaling is not None:
            self.autoscaler.straggler_replaced(since=replaced.since, size=self.job_scaling.desired)

    # --- reading

    def activity(self, view: JobView, scaling: JobScaling, now: float) -> Activity:
        """Return what the auto-scaler does at present."""
        wished = self.wish is not None
        return self.autoscaler.activity(view, scaling, now, plan_requested=wished)

    def belief(self, scaling: JobScaling) -> Belief:
        """Return what the measurements say about the sizes."""
        rates = self.autoscaler.memory.rates
        objective = self.autoscaler.objective(scaling)
        evidence = Evidence(rates, scaling.desired, self.bounds(scaling), objective)
        return self._belief.form(evidence)

    def bounds(self, scaling: JobScaling) -> Bounds:
        """Return the sizes that may be requested, given the known needs of the members."""
        return needs.bounds_by_need(scaling, self.autoscaler.memory.resources.peaks)
