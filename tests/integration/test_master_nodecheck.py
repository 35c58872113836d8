"""Runs the node checks of a job's `spec.health`, with a real master at a real API server."""

from __future__ import annotations

from typing import Any

import pytest
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_api.v1 import job_pb2
from elasticjob_api.v1.job_pb2_grpc import JobServiceStub

from tests.support.grpc_agent import Agent
from tests.support.master_on_kubernetes import Setting
from tests.support.thorough import some_of
from tests.support.wait import until


def checks(agent: Agent) -> list[pb.Check]:
    return [command.check for command in agent.commands if command.WhichOneof("command") == "check"]


def unfit(job: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = job.get("status", {}).get("progress", {}).get("unfit", {})
    return found


def exits(agent: Agent) -> list[pb.Exit]:
    return [command.exit for command in agent.commands if command.WhichOneof("command") == "exit"]


@pytest.mark.guarantee("unfit-node")
async def test_an_unfit_node_is_left_out_notified_and_shown(
    setting: Setting,
) -> None:
    check = {"enabled": True, "command": ["gpu-test", "--quick"], "timeoutSeconds": 60}
    await setting.patch_job({"spec": {"health": {"nodeCheck": check}}})
    async with setting.master() as master, master.channel() as channel:
        good = await Agent(0).join(channel)
        bad = await Agent(1).join(channel)
        await until("a check for both", lambda: checks(good) and checks(bad))
        order = checks(bad)[0]
        assert (list(order.command), order.timeout_seconds) == (["gpu-test", "--quick"], 60)
        assert list(order.peers) == [good.registration().address]
        await good.send(check=pb.CheckResult(number=checks(good)[0].number, seconds=0.1))
        await bad.send(check=pb.CheckResult(number=order.number, seconds=0.1, problem="no GPU"))
        await until("the good one trains, the bad one ends", lambda: good.running and exits(bad))
        assert exits(bad)[0].problem == "no GPU"
        assert [member.pod_name for member in good.started[0].world.members] == [good.name]

        await until(
            "the unfit pod in the status",
            setting.job,
            lambda job: unfit(job) == {bad.name: "no GPU"},
        )
        await good.send(step=pb.StepReport(round=1, step=1, samples=1, seconds=0.1, steps=1))
        again = await Agent(1, incarnation=1).join(channel)
        await until("a check of its successor", lambda: checks(again))
        await again.send(check=pb.CheckResult(number=checks(again)[0].number, seconds=0.1))
        await until("both train", lambda: good.running == again.running == 2)
        assert len(checks(good)) == 1, "each node is checked once"
        await until("no unfit pod in the status", setting.job, lambda job: not unfit(job))
        members = (await JobServiceStub(channel).GetMembers(job_pb2.GetMembersRequest())).members
        assert {member.check_problem for member in members} == {""}


@pytest.mark.guarantee("master-can-be-replaced")
@pytest.mark.parametrize("stage", some_of(["before", "after"], first=1))
async def test_the_next_master_repeats_no_check_and_admits_no_unchecked_node(
    setting: Setting,
    stage: str,
) -> None:
    await setting.patch_job({"spec": {"health": {"nodeCheck": {"enabled": True}}}})
    async with setting.master() as master, master.channel() as channel:
        agents = [await Agent(index).join(channel) for index in (0, 1)]
        await until("a check for both", lambda: all(map(checks, agents)))
        numbers = [checks(agent)[0].number for agent in agents]
        if stage == "after":
            for agent, number in zip(agents, numbers, strict=True):
                await agent.send(check=pb.CheckResult(number=number, seconds=0.1))
            await until("both train", lambda: all(agent.running for agent in agents))
        await master.kill()
    async with setting.master() as master, master.channel() as channel:
        for agent in agents:
            await agent.join(channel)
        if stage == "before":
            await until(
                "the check is asked for again",
                lambda: all(len(checks(agent)) == 2 for agent in agents),
            )
            assert [checks(agent)[1].number for agent in agents] == numbers
            assert not any(agent.running for agent in agents)
        third = await Agent(2).join(channel)
        await until("a check of the new one", lambda: stage == "before" or checks(third))
        if stage == "after":
            assert [len(checks(agent)) for agent in agents] == [1, 1]
