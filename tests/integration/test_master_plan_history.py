"""Checks that the master publishes its job's ScalePlans, and records their begin and end."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from elasticjob_api.v1 import job_pb2
from elasticjob_api.v1.job_pb2_grpc import JobServiceStub
from elasticjob_master.persistence.stored_state import decode

from tests.support.master_on_kubernetes import Setting
from tests.support.wait import SECONDS, until


@pytest.mark.guarantee("master-can-be-replaced")
@pytest.mark.thorough
async def test_plans_are_published_and_recorded_once_even_across_a_masters_death(
    setting: Setting,
) -> None:
    more: Any = {
        "reason": "more of them",
        "replicaResourceSpecs": {"worker": {"replicas": 3}},
    }
    async with setting.master() as master, master.channel() as channel:
        stub = JobServiceStub(channel)

        watch = aiter(stub.WatchPlans(job_pb2.WatchPlansRequest(), timeout=SECONDS))
        assert (await anext(watch)).plans == []
        await setting.create_plan("of-another-job", jobName="other", **more)
        await setting.create_plan("bigger", **more)
        [plan] = (await anext(watch)).plans
        assert (plan.name, plan.source, plan.phase, plan.reason) == (
            "bigger",
            "Manual",
            "Pending",
            "more of them",
        )
        assert plan.created > 1.7e9
        assert plan.completed == 0
        made = ("PlanMade", "bigger (Manual): more of them")
        await until(
            "the plan in the history", partial(plan_events, stub), lambda reasons: reasons == [made]
        )
        await until(
            "the plan in the stored history",
            partial(stored_reasons, setting),
            lambda reasons: "PlanMade" in reasons,
        )
        await master.kill()
    await setting.set_plan_status(
        "bigger", phase="Failed", message="no room", completionTime="2030-01-01T00:00:00Z"
    )
    async with setting.master() as master, master.channel() as channel:
        stub = JobServiceStub(channel)
        ended = ("PlanEnded", "bigger: Failed; no room")
        await until(
            "its end, seen by the next master",
            partial(plan_events, stub),
            lambda reasons: reasons == [made, ended],
        )
        [plan] = (await stub.GetPlans(job_pb2.GetPlansRequest())).plans
        assert (plan.phase, plan.message, plan.completed) == ("Failed", "no room", 1893456000.0)


async def stored_reasons(setting: Setting) -> list[str]:
    return [event.reason for event in decode(await setting.stored_state()).events]


async def plan_events(stub: Any) -> list[tuple[str, str]]:
    history = await stub.GetHistory(job_pb2.GetHistoryRequest())
    return [
        (event.reason, event.message) for event in history.events if event.reason.startswith("Plan")
    ]
