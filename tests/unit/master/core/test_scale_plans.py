"""Which ScalePlans the master lists and records."""

from __future__ import annotations

import pytest
from elasticjob_api.meta import ObjectMeta
from elasticjob_api.scaleplan import PlanPhase, ScalePlan, ScalePlanSpec, ScalePlanStatus
from elasticjob_master.controller import Controller
from elasticjob_master.job_facts import (
    MOST_PLANS,
    JobFacts,
    ObservedPlan,
    PlanFacts,
    latest_plans,
)
from elasticjob_master.persistence import snapshot
from elasticjob_master.server import protobuf


def plan(number: int, phase: PlanPhase | None) -> ScalePlan:
    made = f"2030-01-01T{number // 60:02}:{number % 60:02}:00Z"
    return ScalePlan(
        metadata=ObjectMeta(name=f"p{number}", creation_timestamp=made),
        spec=ScalePlanSpec(job_name="job", source="Auto", reason="why"),
        status=ScalePlanStatus(phase=phase, completion_time=made if phase == "Failed" else None),
    )


def test_the_oldest_finished_plans_are_dropped_first() -> None:
    known = [
        plan(0, None),
        plan(1, "Draining"),
        *(plan(number, "Failed") for number in range(2, MOST_PLANS + 10)),
    ]
    listed = [protobuf.plan(each) for each in latest_plans(reversed(known))]
    latest = range(12, MOST_PLANS + 10)
    assert [each.name for each in listed] == ["p0", "p1", *(f"p{number}" for number in latest)]
    assert [each.phase for each in listed[:3]] == ["Pending", "Draining", "Failed"]
    assert listed[1].completed == 0
    assert listed[2].completed == listed[2].created == 1893456000 + 12 * 60


@pytest.mark.guarantee("master-can-be-replaced")
async def test_begin_and_end_of_a_plan_are_recorded_once_even_across_a_masters_death() -> None:
    def master_with(*plans: ScalePlan) -> Controller:
        controller = Controller(framework="jax", facts=JobFacts(sizes={}))
        observe(controller, *plans)
        return controller

    def observe(controller: Controller, *plans: ScalePlan) -> None:
        observed = PlanFacts(tuple(map(ObservedPlan, plans)))
        controller.observe_job(JobFacts(sizes={}, plans=observed))

    before = master_with(plan(0, None))
    observe(before, plan(0, "Draining"))
    after = master_with()
    snapshot.restore(after, snapshot.take(before, job_uid=""))
    for _ in range(2):
        observe(after, plan(0, "Failed"))
    assert [(event.reason, event.message, event.times) for event in after.history.events()] == [
        ("PlanMade", "p0 (Auto): why", 1),
        ("PlanEnded", "p0: Failed", 1),
    ]
    assert [each.metadata.name for each in after.scaling.latest_plans] == ["p0"]
