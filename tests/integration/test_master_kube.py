"""Runs the master at a real API server, with exactly the rights of its Role."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast

import aiohttp
import grpc.aio
import pytest
from elasticjob_api import names
from elasticjob_api.times import format_time
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_api.v1 import job_pb2
from elasticjob_api.v1.agent_pb2_grpc import AgentServiceStub
from elasticjob_api.v1.job_pb2_grpc import JobServiceStub
from elasticjob_kube.resources import (
    CONFIG_MAPS,
    SERVICE_ACCOUNTS,
)
from elasticjob_localcluster.cluster import Cluster
from elasticjob_localcluster.controlplane.ports import free_port

from tests.support.grpc_agent import Agent, world_of_two
from tests.support.master_on_kubernetes import COOLDOWN, JOB, Setting
from tests.support.master_process import Master
from tests.support.tcp_proxy import cuttable_proxy
from tests.support.thorough import some_of
from tests.support.wait import until


async def train(agents: list[Agent], rate: Callable[[int], float]) -> None:
    """Report steps until cancelled, at the curve's rate for the present world, or slower."""
    step = 0
    last = time.monotonic() - 0.1
    while True:
        step += 1
        here = [agent for agent in agents if agent.running and not agent.ended.is_set()]
        now = time.monotonic()
        seconds = now - last
        last = now
        for agent in here:
            share = rate(len(here)) * seconds / len(here)
            report = pb.StepReport(
                round=agent.running, step=step, total_steps=10_000, samples=share, seconds=seconds
            )
            await agent.send(step=report)
        await asyncio.sleep(0.1)


@pytest.mark.guarantee("no-writes-at-rest")
async def test_progress_is_written_and_an_idle_master_writes_nothing(setting: Setting) -> None:
    async with setting.master() as master, master.channel() as channel:
        agents = await world_of_two(channel)
        await agents[0].send(
            step=pb.StepReport(round=1, step=3, total_steps=9, samples=30, seconds=1)
        )
        job = await until(
            "progress in the status", setting.job, lambda job: job.get("status", {}).get("progress")
        )
        assert job["status"]["progress"]["steps"] == "3/9"
        managers = {
            entry["manager"]
            for entry in job["metadata"]["managedFields"]
            if entry.get("subresource")
        }
        assert managers == {names.MASTER}
        for agent in agents:
            await agent.send(
                step=pb.StepReport(round=1, step=9, total_steps=9, samples=30, seconds=1)
            )
        await until_step(channel, 9)
    job = await setting.job()
    assert job["status"]["progress"]["steps"] == "9/9", "the last status is written at SIGTERM"


async def test_pods_of_a_draining_plan_leave_and_the_others_continue(setting: Setting) -> None:
    async with setting.master() as master, master.channel() as channel:
        agents = await world_of_two(channel)
        await setting.create_plan("of-another-job", jobName="other", removePods=[{"name": "x"}])
        await setting.create_plan("in", removePods=[{"name": agents[0].name}])
        await setting.set_plan_status("in", phase="Draining", drainingPods=[agents[0].name])
        await until("a world of one", lambda: agents[0].ended.is_set() and agents[1].running == 2)
        assert agents[0].commands[-1].drain.grace_seconds == pytest.approx(4.5)
        world = await JobServiceStub(channel).GetWorld(job_pb2.GetWorldRequest())
        assert [member.pod_name for member in world.members] == [agents[1].name]
        shown = await JobServiceStub(channel).GetPlans(job_pb2.GetPlansRequest())
        assert [(plan.name, plan.phase) for plan in shown.plans] == [("in", "Draining")]


@pytest.mark.guarantee("script-runs-once")
async def test_a_script_is_ordered_also_by_the_next_master_and_its_result_is_written(
    setting: Setting,
) -> None:
    async def ordered(agent: Agent) -> pb.RunScript:
        def orders() -> list[pb.RunScript]:
            return [
                command.run_script for command in agent.commands if command.HasField("run_script")
            ]

        return (await until("the order", orders))[-1]

    async with setting.master() as master, master.channel() as channel:
        agents = [await Agent(index).join(channel) for index in (0, 1)]
        removed = [{"role": "worker", "index": 1}]
        uid = await setting.create_plan("in", removePods=removed, script="save")
        run = {"pod": agents[0].name, "startTime": format_time(time.time())}
        indices = {"before": {"worker": "0-1"}, "targets": {"worker": "0"}}
        await setting.set_plan_status("in", phase="Executing", script=run, **indices)
        order = await ordered(agents[0])
        assert (order.id, order.script, order.pods) == (uid, "save", f"{agents[1].name}:1")
        assert not [command for command in agents[1].commands if command.HasField("run_script")]
    async with setting.master() as master, master.channel() as channel:
        agents = [await Agent(index).join(channel) for index in (0, 1)]
        assert (await ordered(agents[0])).id == order.id
        await agents[0].send(script=pb.ScriptResult(id=order.id, exit_code=3, message="no space"))
        job = await until(
            "its end",
            setting.job,
            lambda job: job.get("status", {}).get("progress", {}).get("script"),
        )
        assert job["status"]["progress"]["script"] == {
            "plan": order.id,
            "exitCode": 3,
            "message": "no space",
        }


@pytest.mark.guarantee("auto-scaler-explains-itself")
@pytest.mark.parametrize(
    ("third", "replicas"),
    # After so abrupt a step a look at the largest size may be worth what it costs.
    some_of([pytest.param(120.0, {5}), pytest.param(20.0, {1, 2, 5})], first=1),
)
async def test_the_auto_scaler_decides_by_earlier_measurements_as_soon_as_it_is_enabled(
    setting: Setting, third: float, replicas: set[int]
) -> None:
    await setting.set_desired(2)
    async with setting.master() as master, master.channel() as channel, AsyncExitStack() as cleanup:
        agents = [await Agent(index).join(channel) for index in (0, 1)]
        rates = {1: 1.0, 2: 50.0, 3: third}
        training = asyncio.create_task(train(agents, lambda size: rates[size]))
        cleanup.callback(training.cancel)
        await master.logged("measured: 2 members")
        await setting.set_desired(3)
        agents.append(await Agent(2).join(channel))
        await master.logged("measured: 3 members")
        assert await setting.plans() == []
        known = await autoscaling(channel)
        assert (known.enabled, known.role, known.size, known.reason) == (False, "worker", 3, "")
        measured = {
            size.size: size.samples_per_second for size in known.sizes if size.samples_per_second
        }
        assert measured.keys() == {2, 3}
        assert measured[2] == pytest.approx(50.0, rel=0.5)
        await setting.patch_job({"spec": {"autoscaling": {"enabled": True}}})
        [plan] = await until("an Auto plan", setting.plans, bool)
        watch = JobServiceStub(channel).WatchAutoscaling(
            job_pb2.WatchAutoscalingRequest(), timeout=20
        )
        async for known in watch:
            if known.waiting_for == "the end of the present ScalePlan":
                break
        assert known.enabled
        assert known.reason == plan["spec"]["reason"]
        assert plan["metadata"]["name"] == f"{JOB}-auto-1"
        assert plan["metadata"]["ownerReferences"][0]["uid"] == setting.uid
        assert plan["spec"]["source"] == "Auto"
        assert plan["spec"]["replicaResourceSpecs"]["worker"]["replicas"] in replicas
        assert "2 members: " in plan["spec"]["reason"]
        await asyncio.sleep(3 * COOLDOWN)
        assert len(await setting.plans()) == 1, "no second plan while the first is unfinished"


async def autoscaling(channel: grpc.aio.Channel) -> job_pb2.Autoscaling:
    """Return the auto-scaler's state of a master."""
    return await JobServiceStub(channel).GetAutoscaling(job_pb2.GetAutoscalingRequest())


@pytest.mark.guarantee("master-hangs")
async def test_a_master_that_waits_for_its_state_is_alive_not_ready_and_answers_nothing(
    setting: Setting, tmp_path: Path
) -> None:
    name = names.state_config_map(JOB)
    port = free_port()
    await setting.kube.delete(CONFIG_MAPS, setting.namespace, name)
    starting = setting.master(ports=(0, port))
    begun = asyncio.create_task(starting.__aenter__())
    waiting = Master(cast(Any, None), tmp_path / "master.log", http_port=port)

    async def alive() -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            return await http_status(waiting, "/healthz") == 200
        return False

    await until("it is alive", alive, bool)
    assert await http_status(waiting, "/readyz") == 503
    assert await http_status(waiting, "/hosts") == 503, "an empty list would end the training"
    assert not begun.done()
    await setting.kube.create(CONFIG_MAPS, setting.namespace, {"metadata": {"name": name}})
    await begun
    await until(
        "it is ready", partial(http_status, waiting, "/readyz"), lambda status: status == 200
    )
    await starting.__aexit__(None, None, None)


@pytest.mark.guarantee("master-can-be-replaced")
async def test_a_killed_master_continues_from_its_config_map(setting: Setting) -> None:
    async with setting.master() as master, master.channel() as channel:
        agents = await world_of_two(channel)
        await agents[0].send(
            step=pb.StepReport(round=1, step=3, total_steps=9, samples=30, seconds=1)
        )
        await until(
            "progress in the status", setting.job, lambda job: job.get("status", {}).get("progress")
        )
        await stored(setting)
        await master.kill()
    async with setting.master() as master, master.channel() as channel:
        status = await JobServiceStub(channel).GetStatus(job_pb2.GetStatusRequest())
        assert (status.master_starts, status.round, status.world_size) == (2, 1, 2)
        for agent in agents:
            await agent.join(channel)
        await agents[1].heartbeat()
        assert [len(agent.started) for agent in agents] == [1, 1], "training was not touched"


async def trigger_write(channel: grpc.aio.Channel) -> None:
    """Give a master something to write, so that it detects another master.

    It may end before it has answered.
    """
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        await AgentServiceStub(channel).Register(Agent(0).registration(), timeout=20)


@pytest.mark.guarantee("master-deleted-node-lost")
async def test_a_second_master_makes_the_first_one_end(setting: Setting) -> None:
    async with setting.master() as first, first.channel() as channel, setting.master():
        first.ends_with = 1
        await trigger_write(channel)
        async with asyncio.timeout(20):
            await first.process.wait()
        assert b"was written by another master" in first.log.read_bytes()


@pytest.mark.guarantee("service-account-recreated")
@pytest.mark.thorough
async def test_a_master_ends_if_its_service_account_was_created_again(
    setting: Setting,
) -> None:
    async with setting.master() as master, master.channel() as channel:
        master.ends_with = 1
        await Agent(0).join(channel)
        await setting.kube.delete(SERVICE_ACCOUNTS, setting.namespace, "master")
        await setting.kube.create(
            SERVICE_ACCOUNTS, setting.namespace, {"metadata": {"name": "master"}}
        )
        async with asyncio.timeout(120):
            await master.process.wait()
        assert b"has refused this pod's token for" in master.log.read_bytes()


@pytest.mark.guarantee("master-configmap-lost")
@pytest.mark.thorough
async def test_a_master_writes_its_state_to_a_recreated_config_map(
    setting: Setting,
) -> None:
    async with setting.master() as master, master.channel() as channel:
        agents = await world_of_two(channel)
        await stored(setting)
        name = names.state_config_map(JOB)
        await setting.kube.delete(CONFIG_MAPS, setting.namespace, name)
        await setting.kube.create(CONFIG_MAPS, setting.namespace, {"metadata": {"name": name}})
        agents.append(await Agent(2).join(channel))
        await until("the state is stored again", setting.stored_state, bool)
        await until("a world of three", lambda: all(agent.running == 2 for agent in agents))
        await stored(setting)
        await master.kill()
    async with setting.master() as master, master.channel() as channel:
        status = await JobServiceStub(channel).GetStatus(job_pb2.GetStatusRequest())
        assert (status.master_starts, status.round, status.world_size) == (2, 2, 3), (
            "nothing was lost"
        )


@pytest.mark.guarantee("two-masters-at-a-time", "master-hangs")
@pytest.mark.thorough
async def test_a_master_without_the_api_server_starts_no_world_and_yields_to_another(
    setting: Setting, cluster: Cluster
) -> None:
    async with AsyncExitStack() as cleanup:
        port = free_port()
        proxy = await cleanup.enter_async_context(
            cuttable_proxy("127.0.0.1", port, to=("127.0.0.1", cluster.port))
        )
        first = await cleanup.enter_async_context(setting.master(through=port))
        first.ends_with = 1
        channel = await cleanup.enter_async_context(first.channel())
        agents = await world_of_two(channel)
        await stored(setting)
        proxy.cut()
        agents.append(await Agent(2).join(channel))
        await agents[2].heartbeat()
        await until(
            "the cut is noticed",
            lambda: b"the state is not stored, trying again" in first.log.read_bytes(),
            seconds=40,
        )
        await until(
            "it is not ready",
            partial(http_status, first, "/readyz"),
            lambda status: status == 503,
            seconds=40,
        )
        assert await http_status(first, "/healthz") == 200, "restarting the master would not help"
        assert [agent.running for agent in agents] == [1, 1, 0], (
            "the world continues, and no other is formed"
        )
        await agents[1].leave()
        await agents[0].send(exited=pb.ProcessExited(round=1, exit_code=1))
        agents[0].running = 0
        await until(
            "a crash ends the world",
            lambda: b"round 2, training" in first.log.read_bytes(),
            seconds=40,
        )
        assert [len(agent.started) for agent in agents] == [1, 1, 0], (
            "the world that follows is not stored"
        )
        second = await cleanup.enter_async_context(setting.master())
        other = await cleanup.enter_async_context(second.channel())
        for agent in agents[:2]:
            await agent.join(other)
        proxy.restore()
        async with asyncio.timeout(40):
            await first.process.wait()
        assert second.process.returncode is None
        await agents[2].join(other)
        await until(
            "a world of the second master", lambda: len({agent.running for agent in agents}) == 1
        )
        assert 2 not in {start.world.round for agent in agents for start in agent.started}


async def http_status(master: Master, path: str) -> int:
    """Return the status of a master's HTTP answer, as the kubelet sees it."""
    url = f"https://127.0.0.1:{master.http_port}{path}"
    async with aiohttp.ClientSession() as http, http.get(url, ssl=False) as answer:
        return answer.status


async def until_step(channel: grpc.aio.Channel, step: int) -> None:
    async for status in JobServiceStub(channel).WatchStatus(
        job_pb2.WatchStatusRequest(), timeout=20
    ):
        if status.progress.step == step:
            return


async def stored(setting: Setting) -> None:
    """Wait until the ConfigMap is not written any more and contains everything so far."""
    last = None
    async with asyncio.timeout(20):
        while True:
            found = await setting.kube.get(
                CONFIG_MAPS, setting.namespace, names.state_config_map(JOB)
            )
            if found["metadata"]["resourceVersion"] == last:
                return
            last = found["metadata"]["resourceVersion"]
            await asyncio.sleep(1.5)
