"""A controller whose members train in simulated time, each as slow as a test says.

A simulated cluster replaces them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from elasticjob_api.health import Health
from elasticjob_api.meta import ObjectMeta
from elasticjob_api.scaleplan import PlanPhase, ScalePlan, ScalePlanSpec, ScalePlanStatus
from elasticjob_api.step_report import StepReport
from elasticjob_master import scaling_control
from elasticjob_master.controller import Controller
from elasticjob_master.core.autoscale.decision import ScalingDecision
from elasticjob_master.core.autoscale.job_scaling import EndedPlan
from elasticjob_master.core.rendezvous.advance import advance
from elasticjob_master.core.rendezvous.events import StateRestored
from elasticjob_master.core.rendezvous.member_events import (
    MemberDisconnected,
    MemberLeaving,
    ProcessExited,
)
from elasticjob_master.core.rendezvous.members import Identity, Member
from elasticjob_master.core.rendezvous.rules import RoleSize
from elasticjob_master.job_facts import JobFacts, ObservedPlan, PlanFacts
from elasticjob_master.scaling_control import PlanWish

EPOCH = 1_000_000_000.0
TICK = 4
OwnSeconds = Callable[[Member, int], float]
"""The time that a member of a rank needs for its own part of a step."""


class StragglingJob:
    """The job. A step takes as long as its slowest member needs.

    Attributes:
        replaced: the time, the member to replace and the reason of each decision.
        next_node: the node of the next replacement; empty if no replacement can be had.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        members: int,
        *,
        health: Health | None = None,
        kept: bool = False,
    ) -> None:
        self.second = 0
        self.step = 0
        monkeypatch.setattr(
            scaling_control, "time", SimpleNamespace(time=lambda: EPOCH + self.second)
        )
        self.replaced: list[tuple[float, Member, str]] = []
        self.next_node = "spare"
        self._health = health or Health(on_straggler="Replace")
        self._sizes = {"worker": RoleSize(1, members, kept=kept)}
        self._under_way: tuple[int, ScalingDecision] | None = None
        self.controller = self._controller()
        self._begin([self._member(index, f"node-{index}") for index in range(members)], 1)

    def _controller(self) -> Controller:
        facts = JobFacts(sizes=self._sizes, health=self._health)
        controller = Controller(framework="jax", facts=facts)
        controller.decisions.request = lambda: None  # type: ignore[method-assign]  # no event loop
        return controller

    def _member(self, index: int, node: str) -> Member:
        name = f"j-worker-{index}-{self.second}"
        identity = Identity(name, f"uid-{name}", "worker", index, node_name=node)
        return Member(
            identity,
            1 + self.second,
            disconnected_since=None,
            process_round=1,
            started=True,
            last_heard_at=float(self.second),
        )

    def _begin(self, members: list[Member], round_: int) -> None:
        """Form the next world of these, by rank."""
        state = self.controller.rendezvous
        new = tuple(member for member in members if state.members.get(member.uid) is None)
        world = tuple(member.uid for member in members)
        advance(state, float(self.second), StateRestored(new, "training", round_, world))
        advance(state, float(self.second))

    def world(self) -> list[Member]:
        """Return the members by rank."""
        return list(self.controller.rendezvous.world_members())

    def set_health(self, **changes: Any) -> None:
        """Change the health's settings while the job runs."""
        self._health = Health(on_straggler="Replace", **changes)
        facts = replace(self.controller.facts, health=self._health)
        self.controller.observe_job(facts)

    def restart_master(self) -> None:
        """Let another master continue from what this one has stored."""
        before = self.controller
        self.controller = self._controller()
        scaling = self.controller.scaling
        scaling.replacer.memory = before.scaling.replacer.memory
        scaling.autoscaler.memory = before.scaling.autoscaler.memory
        scaling.use_number(before.scaling.last_number)
        state = before.rendezvous
        self._begin(list(state.world_members()), state.round + 1)

    def train(self, seconds: int, own_seconds: OwnSeconds, *, execute: bool = True) -> None:
        """Let them train; `execute`: the cluster executes the plans that are made."""
        for _ in range(0, seconds, TICK):
            self.second += TICK
            self._report(own_seconds)
            now = float(self.second)
            self.controller.health_monitor.tick(self.controller, now, wall=EPOCH + now)
            self.controller.scaling.tick(self.controller, now)
            if self.controller.scaling.wish is not None:
                self._create_plan(self.controller.scaling.wish)
            if execute and self._under_way is not None:
                self.execute_plan()

    def _report(self, own_seconds: OwnSeconds) -> None:
        world = self.world()
        own = [own_seconds(member, rank) for rank, member in enumerate(world)]
        slowest = max(own)
        steps = max(1, int(TICK / slowest))
        self.step += steps
        for member, each in zip(world, own, strict=True):
            member.last_heard_at = float(self.second)
            round_ = self.controller.rendezvous.round
            report = StepReport(
                round_,
                self.step,
                samples=steps,
                seconds=TICK,
                steps=steps,
                compute_seconds=each * steps,
            )
            self.controller.progress.add_report(
                member.uid, report, now=float(self.second), wall=EPOCH + self.second
            )
            member.step_times.add(report, steps, float(self.second))

    # --- plans

    def _create_plan(self, wish: PlanWish) -> None:
        decision = wish.decision
        assert decision.straggler is not None
        assert self._under_way is None, "a second plan beside one that is under way"
        member = decision.straggler.slowness.member
        self.replaced.append((float(self.second), member, decision.reason))
        self._under_way = (wish.number, decision)
        self.controller.scaling.plan_created(wish)
        self.observe_plan(wish.number, "Executing")

    def observe_plan(self, number: int, phase: PlanPhase, ended: EndedPlan | None = None) -> None:
        """Let the master see a plan of the auto-scaler."""
        metadata = ObjectMeta(name=f"j-auto-{number}", uid=f"plan-{number}")
        status = ScalePlanStatus(phase=phase)
        plan = ScalePlan(metadata=metadata, spec=ScalePlanSpec(job_name="j"), status=status)
        scaling = self.controller.scaling
        observed = ObservedPlan(plan, number, ended=ended)
        facts = PlanFacts((observed,), scaling=scaling.job_scaling)
        scaling.observe(self.controller, facts)

    def execute_plan(self) -> None:
        """End the plan that is under way: the new member takes over, if it can be had."""
        assert self._under_way is not None
        number, decision = self._under_way
        self._under_way = None
        assert decision.straggler is not None
        old = decision.straggler.slowness.member
        ended = EndedPlan(number, "Failed", None, 0, "no room")
        if self.next_node:
            taken = {member.identity.index for member in self.world()}
            index = next(index for index in range(len(taken) + 1) if index not in taken)
            new = self._member(index, self.next_node)
            state = self.controller.rendezvous
            now = float(self.second)
            advance(state, now, MemberLeaving(old.uid))
            advance(state, now, ProcessExited(old.uid, old.process_round, 0, requested=True))
            advance(state, now, MemberDisconnected(old.uid))
            world = [*(member for member in self.world() if member is not old), new]
            self._begin(world, state.round + 1)
            ended = replace(ended, phase="Succeeded", replacement=index)
        for _ in range(2):  # it is seen again and again
            self.observe_plan(number, "Succeeded" if self.next_node else "Failed", ended)
