"""Checks that the master publishes its job's ScalePlans, and records their begin and end."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from elasticjob_api import names
from elasticjob_api.v1 import job_pb2
from elasticjob_api.v1.job_pb2_grpc import JobServiceStub
from elasticjob_kube.resources import CONFIG_MAPS, SCALE_PLANS
from elasticjob_master.persistence.stored_state import decode

from tests.support.master_on_kubernetes import JOB, Setting
from tests.support.wait import SECONDS, until

KIND = {"apiVersion": SCALE_PLANS.api_version, "kind": SCALE_PLANS.kind}


async def make(setting: Setting, name: str, job: str = JOB) -> None:
    spec = {
        "jobName": job,
        "reason": "more of them",
        "replicaResourceSpecs": {"worker": {"replicas": 3}},
    }
    await setting.kube.create(
        SCALE_PLANS, setting.namespace, KIND | {"metadata": {"name": name}, "spec": spec}
    )


@pytest.mark.guarantee("master-can-be-replaced")
@pytest.mark.thorough
async def test_plans_are_published_and_recorded_once_even_across_a_masters_death(
    setting: Setting,
) -> None:
    async def end() -> None:
        status = {"phase": "Failed", "message": "no room", "completionTime": "2030-01-01T00:00:00Z"}
        await setting.kube.patch(
            SCALE_PLANS, setting.namespace, "bigger", {"status": status}, subresource="status"
        )

    async with setting.master() as master, master.channel() as channel:
        stub = JobServiceStub(channel)

        watch = aiter(stub.WatchPlans(job_pb2.WatchPlansRequest(), timeout=SECONDS))
        assert (await anext(watch)).plans == []
        await make(setting, "of-another-job", job="other")
        await make(setting, "bigger")
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
        await until("the plan in the history", recorded_by(stub), lambda reasons: reasons == [made])
        await until(
            "the plan in the stored history",
            stored_by(setting),
            lambda reasons: "PlanMade" in reasons,
        )
        await master.kill()
    await end()
    async with setting.master() as master, master.channel() as channel:
        stub = JobServiceStub(channel)
        ended = ("PlanEnded", "bigger: Failed; no room")
        await until(
            "its end, seen by the next master",
            recorded_by(stub),
            lambda reasons: reasons == [made, ended],
        )
        [plan] = (await stub.GetPlans(job_pb2.GetPlansRequest())).plans
        assert (plan.phase, plan.message, plan.completed) == ("Failed", "no room", 1893456000.0)


def stored_by(setting: Setting) -> Any:
    async def look() -> list[str]:
        found = await setting.kube.get(CONFIG_MAPS, setting.namespace, names.state_config_map(JOB))
        return [
            event.reason for event in decode(base64.b64decode(found["binaryData"]["state"])).events
        ]

    return look


def recorded_by(stub: Any) -> Any:
    async def look() -> list[tuple[str, str]]:
        return await plan_events(stub)

    return look


async def plan_events(stub: Any) -> list[tuple[str, str]]:
    history = await stub.GetHistory(job_pb2.GetHistoryRequest())
    return [
        (event.reason, event.message) for event in history.events if event.reason.startswith("Plan")
    ]
