"""The auto-scaler in a controller: what it measures, which plans it requests, and what it learns from their ends."""

from __future__ import annotations

from dataclasses import replace

import pytest
from elasticjob_master.controller import Controller
from elasticjob_master.core.autoscale.decision import Bounds, ScalingDecision
from elasticjob_master.core.autoscale.job_scaling import EndedPlan, JobScaling
from elasticjob_master.core.autoscale.pending import MISSING_SECONDS
from elasticjob_master.core.autoscale.scaling_memory import ScalingMemory
from elasticjob_master.core.progress import Report
from elasticjob_master.core.rendezvous.members import Identity, Member

COOLDOWN = 10.0


class Job:
    """A controller whose world trains, and the plans it asks for."""

    def __init__(self, *, members: int, desired: int) -> None:
        self.controller = Controller(framework="jax")
        self.scaling = self.controller.scaling
        uids = tuple(str(index) for index in range(members))
        for index, uid in enumerate(uids):
            identity = Identity(pod_name=f"j-worker-{index}", pod_uid=uid, role="worker", index=index)
            self.controller.members.insert(
                Member(identity, index + 1, disconnected_since=None, process_round=1, started=True)
            )
        rendezvous = self.controller.rendezvous
        rendezvous.restore(phase="training", process_round=1, world=uids, finished=False, now=0.0)
        rendezvous.confirmed_at = 0.0
        self.uids = uids
        self.asked: list[ScalingDecision] = []
        self.scaling.on_decision = lambda _role, decision: self.asked.append(decision)
        self.scaling.job_scaling = JobScaling(
            role="worker",
            desired=desired,
            bounds=Bounds(1, 16),
            enabled=True,
            cooldown=COOLDOWN,
            indices=frozenset(range(desired)),
        )

    def train(self, start: int, end: int, rate: float) -> None:
        """Let time pass, second by second, with so many samples a second."""
        for second in range(start, end):
            for uid in self.uids:
                report = Report(round=1, step=second, samples=rate / len(self.uids), seconds=1.0)
                self.controller.progress.add_report(uid, report, now=float(second), wall=float(second))
            self.scaling.tick(self.controller, float(second))


def test_a_reached_size_is_measured_and_one_plan_is_asked_for_at_a_time() -> None:
    job = Job(members=2, desired=2)
    job.train(0, 9, 100.0)
    assert job.asked == []
    job.train(9, 40, 100.0)
    assert [decision.size for decision in job.asked] == [4]
    assert job.scaling.autoscaler.memory.rates[2] == pytest.approx(100.0)
    job.scaling.plan_not_created()
    job.train(40, 42, 100.0)
    assert len(job.asked) == 2, "a plan that could not be made is asked for again"
    job.scaling.plan_created(1, job.asked[-1])
    assert job.scaling.autoscaler.memory.asked == 4


def test_nothing_is_asked_for_while_a_plan_is_unfinished_or_scaling_is_off() -> None:
    for plan_unfinished, enabled in ((True, True), (False, False)):
        job = Job(members=2, desired=2)
        assert job.scaling.job_scaling is not None
        job.scaling.job_scaling = replace(job.scaling.job_scaling, plan_unfinished=plan_unfinished, enabled=enabled)
        job.train(0, 30, 100.0)
        assert job.asked == []
        assert 2 in job.scaling.autoscaler.memory.rates


def test_members_that_stay_missing_while_the_others_train_are_given_up() -> None:
    job = Job(members=2, desired=4)
    job.train(0, int(MISSING_SECONDS), 100.0)
    assert job.asked == []
    assert job.scaling.autoscaler.memory.rates == {}, "an incomplete world says nothing about its size"
    job.train(int(MISSING_SECONDS), int(MISSING_SECONDS) + 2, 100.0)
    [decision] = job.asked
    assert decision.remove == (2, 3)
    assert decision.memory.had == 2


def test_the_end_of_a_plan_is_learned_from_once() -> None:
    job = Job(members=2, desired=2)
    job.controller.plans.use_number(3)
    unmet = EndedPlan(number=3, phase="PartiallySucceeded", requested_size=8, reached_size=5, message="no room")
    for _ in range(2):
        job.scaling.plan_ended(unmet)
    assert (job.scaling.autoscaler.memory.had, job.scaling.autoscaler.memory.pause) == (5, 600.0)
    job.scaling.plan_ended(replace(unmet, number=2, reached_size=1))
    assert job.scaling.autoscaler.memory.had == 5, "an older plan changes nothing"
    job.controller.plans.use_number(4)
    job.scaling.plan_ended(replace(unmet, number=4, requested_size=None))
    assert job.scaling.autoscaler.memory.resources_at > 0
    job.controller.plans.use_number(5)
    job.scaling.plan_ended(EndedPlan(number=5, phase="Succeeded", requested_size=8, reached_size=8, message=""))
    assert job.scaling.autoscaler.memory.had is None


def test_a_plan_that_is_found_counts_as_asked_for() -> None:
    job = Job(members=2, desired=2)
    job.scaling.autoscaler.restore(ScalingMemory(asked=4, heading=1))
    job.scaling.adopt_plan(7, 2)
    memory = job.scaling.autoscaler.memory
    assert (job.controller.plans.last_number, memory.asked, memory.moves) == (7, 2, 1)
    assert (memory.heading, memory.turned) == (-1, True)
