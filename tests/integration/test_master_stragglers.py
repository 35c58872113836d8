"""Lets a real master at a real API server replace a straggler by a ScalePlan.

Agents and operator are played.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_api.v1 import job_pb2
from elasticjob_api.v1.job_pb2_grpc import JobServiceStub

from tests.support.grpc_agent import Agent
from tests.support.master_on_kubernetes import JOB, Setting
from tests.support.wait import until

PLAN = f"{JOB}-auto-1"
FAST = 0.01
SLOW = 0.09


async def train(agents: list[Agent], slow: tuple[int, ...]) -> None:
    """Report steps until cancelled, as processes that wait for each other do.

    Those with the slow indices compute longer.
    """
    step = 0
    while True:
        step += 1
        for agent in agents:
            if agent.running and not agent.ended.is_set():
                own = SLOW if agent.index in slow else FAST
                report = pb.StepReport(
                    round=agent.running,
                    step=step,
                    samples=1,
                    seconds=0.1,
                    steps=1,
                    compute_seconds=own,
                )
                await agent.send(step=report)
        await asyncio.sleep(0.1)


async def prepare(setting: Setting, *, most: int) -> None:
    """Let three members train, and have stragglers replaced."""
    await setting.set_desired(3)
    health = {"stragglerSeconds": 1, "onStraggler": "Replace", "maxStragglerReplacements": most}
    await setting.patch_job({"spec": {"health": health}})


async def set_plan_status(setting: Setting, phase: str, move: str, *draining: str) -> None:
    """Write the plan's progress, as the operator does."""
    moves = [{"role": "worker", "index": 2, "replacement": 3, "phase": move}]
    await setting.set_plan_status(PLAN, phase=phase, migrations=moves, drainingPods=draining)


def why_not_replaced(job: dict[str, Any]) -> str:
    """Return the reason against a replacement in the job's status."""
    return str(job.get("status", {}).get("progress", {}).get("whyNotReplaced", ""))


@pytest.mark.guarantee("straggler-replaced")
@pytest.mark.thorough
async def test_a_straggler_becomes_one_plan_and_the_next_master_knows_it(
    setting: Setting,
) -> None:
    await prepare(setting, most=3)
    agents: list[Agent] = []
    async with setting.master() as master, master.channel() as channel, AsyncExitStack() as cleanup:
        agents += [await Agent(index).join(channel) for index in (0, 1, 2)]
        await until("a world of three", lambda: all(agent.running == 1 for agent in agents))
        training = asyncio.create_task(train(agents, (2, 3)))
        cleanup.callback(training.cancel)
        [plan] = await until("a plan", setting.plans, bool)
        assert plan["spec"]["source"] == "Auto"
        assert [(move["name"], move["avoidNode"]) for move in plan["spec"]["migratePods"]] == [
            (agents[2].name, True)
        ]
        assert plan["spec"]["onTimeout"] == "Rollback"
        assert plan["spec"]["reason"].endswith("replacement 1 of 3")
        await set_plan_status(setting, "Executing", "Starting")
        await master.logged("successors: worker 3")
        agents.append(await Agent(3).join(channel))

        async def states() -> list[int]:
            found = await JobServiceStub(channel).GetMembers(job_pb2.GetMembersRequest())
            return [member.state for member in found.members]

        joined = [*3 * [pb.MEMBER_STATE_TRAINING], pb.MEMBER_STATE_WAITING]
        await until("the replacement exists and waits", states, lambda current: current == joined)
        await set_plan_status(setting, "Draining", "Draining", agents[2].name)
        await until("the straggler's end", agents[2].ended.is_set)
        await until("a world with the new member", lambda: agents[3].running == 2)
        await set_plan_status(setting, "Succeeded", "Done")
        job = await until("the new member is as slow", setting.job, why_not_replaced)
        text = (
            f"{agents[3].name} is as slow as {agents[2].name} on another node: "
            "it is the work, not the node"
        )
        assert why_not_replaced(job) == text
        training.cancel()
        await master.kill()
    del agents[2]
    async with setting.master() as master, master.channel() as channel, AsyncExitStack() as cleanup:
        await setting.patch_job({"status": {"progress": None}}, "status")
        for agent in agents:
            await agent.join(channel)
        training = asyncio.create_task(train(agents, (3,)))
        cleanup.callback(training.cancel)
        job = await until("the second master reports it, too", setting.job, why_not_replaced)
        assert why_not_replaced(job) == text
        assert len(await setting.plans()) == 1


@pytest.mark.guarantee("straggler-replaced")
async def test_a_replacement_counts_even_if_the_killed_master_did_not_store_it(
    setting: Setting,
) -> None:
    await prepare(setting, most=1)
    moves = [{"name": f"{JOB}-worker-9", "avoidNode": True}]
    await setting.create_plan(PLAN, source="Auto", migratePods=moves)
    await set_plan_status(setting, "Succeeded", "Done")
    async with setting.master() as master, master.channel() as channel, AsyncExitStack() as cleanup:
        agents = [await Agent(index).join(channel) for index in (0, 1, 2)]
        training = asyncio.create_task(train(agents, (1,)))
        cleanup.callback(training.cancel)
        job = await until("it is said why", setting.job, why_not_replaced)
        assert why_not_replaced(job) == "maxStragglerReplacements is 1, and so many were replaced"
        assert len(await setting.plans()) == 1
