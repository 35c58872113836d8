"""A controller whose members train in simulated time, each as slow as a test says, and a cluster that replaces them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from elasticjob_master.job_facts import JobFacts
from elasticjob_api.health import Health
from elasticjob_api.meta import ObjectMeta
from elasticjob_api.scaleplan import PlanPhase, ScalePlan, ScalePlanSpec, ScalePlanStatus
from elasticjob_master import scaling_control
from elasticjob_master.controller import Controller
from elasticjob_master.core.autoscale.decision import ScalingDecision
from elasticjob_master.core.autoscale.job_scaling import EndedPlan
from elasticjob_master.core.progress import Report
from elasticjob_master.core.rendezvous.members import Identity, Member
from elasticjob_master.core.rendezvous.rules import RoleSize

EPOCH = 1_000_000_000.0
TICK = 4
OwnSeconds = Callable[[Member, int], float]
"""The time that a member of a rank needs for its own part of a step."""


class StragglingJob:
    """The job. A step takes as long as its slowest member needs.

    Attributes:
        replaced: the members that were replaced or were to be, with the time of the decision and its reason.
        next_node: on which node the next replacement runs; empty: it cannot be had.
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
        self.controller = Controller(framework="jax", facts=JobFacts(sizes=self._sizes))
        self._begin([self._member(index, f"node-{index}") for index in range(members)])
        self._connect()

    def _connect(self) -> None:
        self.controller.health = self._health
        self.controller.scaling.on_decision = self._decided

    def _member(self, index: int, node: str) -> Member:
        name = f"j-worker-{index}-{self.second}"
        identity = Identity(name, f"uid-{name}", "worker", index, node_name=node)
        return Member(
            identity, 1 + self.second, disconnected_since=None, process_round=1, started=True
        )

    def _begin(self, members: list[Member]) -> None:
        """Form the next world of these, by rank."""
        controller = self.controller
        for member in members:
            if controller.members.get(member.uid) is None:
                controller.members.insert(member)
        rendezvous = controller.rendezvous
        world = tuple(member.uid for member in members)
        round_ = rendezvous.round + 1
        rendezvous.restore(
            phase="training",
            process_round=round_,
            world=world,
            finished=False,
            now=float(self.second),
        )
        rendezvous.confirmed_at = float(self.second)

    def world(self) -> list[Member]:
        """Return the members by rank."""
        return list(self.controller.rendezvous.world_members())

    def set_health(self, **changes: Any) -> None:
        """Change the health's settings while the job runs."""
        self._health = Health(on_straggler="Replace", **changes)
        self.controller.health = self._health  # without the event loop in which decisions are made

    def restart_master(self) -> None:
        """Let another master go on with what this one has stored."""
        before = self.controller
        self.controller = Controller(framework="jax", facts=JobFacts(sizes=self._sizes))
        scaling = self.controller.scaling
        rendezvous = self.controller.rendezvous
        scaling.replacer.restore(before.scaling.replacer.memory)
        scaling.autoscaler.restore(before.scaling.autoscaler.memory)
        self.controller.plans.restore(before.plans.last_number)
        for plan in before.plans:
            self.controller.plans.put(plan, None)
        rendezvous.round = before.rendezvous.round
        self._begin(list(before.rendezvous.world_members()))
        self._connect()

    def train(self, seconds: int, own_seconds: OwnSeconds, *, execute: bool = True) -> None:
        """Let them train; `execute`: the cluster executes the plans that are made."""
        for _ in range(0, seconds, TICK):
            self.second += TICK
            self._report(own_seconds)
            now = float(self.second)
            self.controller.health_monitor.tick(self.controller, now, wall=EPOCH + now)
            self.controller.scaling.tick(self.controller, now)
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
            report = Report(
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
    # -------------------------------------------------------------------------------------------------------

    def _decided(self, _role: str, decision: ScalingDecision) -> None:
        assert decision.straggler is not None
        assert self._under_way is None, "a second plan beside one that is under way"
        self.replaced.append(
            (float(self.second), decision.straggler.slowness.member, decision.reason)
        )
        number = self.controller.plans.next_number
        self._under_way = (number, decision)
        self._put(number, "Executing")
        self.controller.scaling.plan_created(number, decision)

    def _put(self, number: int, phase: PlanPhase) -> None:
        metadata = ObjectMeta(name=f"j-auto-{number}", uid=f"plan-{number}")
        status = ScalePlanStatus(phase=phase)
        self.controller.plans.put(
            ScalePlan(metadata=metadata, spec=ScalePlanSpec(job_name="j"), status=status), number
        )

    def execute_plan(self) -> None:
        """End the plan that is under way: the new member takes over, if it can be had."""
        assert self._under_way is not None
        (number, decision), self._under_way = self._under_way, None
        assert decision.straggler is not None
        old = decision.straggler.slowness.member
        scaling = self.controller.scaling
        ended = EndedPlan(number, "Failed", None, 0, "no room")
        if self.next_node:
            taken = {member.identity.index for member in self.world()}
            index = next(index for index in range(len(taken) + 1) if index not in taken)
            new = self._member(index, self.next_node)
            self.controller.members.remove(old)
            self._begin([*(member for member in self.world() if member is not old), new])
            ended = replace(ended, phase="Succeeded", replacement=index)
        self._put(number, "Succeeded" if self.next_node else "Failed")
        for _ in range(2):
            scaling.plan_ended(ended)  # it is seen again and again
