"""Checks a real master's reaction to hanging and slow members; agents are played."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_api.v1 import job_pb2
from elasticjob_api.v1.job_pb2_grpc import JobServiceStub
from elasticjob_master.persistence.stored_state import StoredState, decode

from tests.support.grpc_agent import Agent
from tests.support.master_process import run_master
from tests.support.wait import until


def progress(channel: grpc.aio.Channel) -> Callable[[], Awaitable[job_pb2.Progress]]:
    """Return a function that reads the progress."""
    return lambda: JobServiceStub(channel).GetProgress(job_pb2.GetProgressRequest())


def stored(path: Path) -> StoredState:
    """Return the master's stored state."""
    return decode(path.read_bytes())


async def joined(channel: grpc.aio.Channel, count: int) -> list[Agent]:
    """Return agents that train together."""
    agents = [await Agent(index).join(channel) for index in range(count)]
    await until("a world of all", lambda: all(agent.running for agent in agents))
    return agents


async def step(agents: list[Agent], number: int, *, own: dict[int, float] | None = None) -> None:
    """Let all agents finish a step, as processes that wait for each other do.

    `own` is each one's own compute time.
    """
    for agent in agents:
        compute = (own or {}).get(agent.index, 0.0)
        await agent.send(
            step=pb.StepReport(
                round=agent.running, step=number, seconds=0.1, steps=1, compute_seconds=compute
            )
        )


@asynccontextmanager
async def alive(agents: list[Agent]) -> AsyncIterator[None]:
    """Send the agents' heartbeats until cancelled."""

    async def beat() -> None:
        while True:
            for agent in agents:
                await agent.heartbeat()
            await asyncio.sleep(0.5)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


@pytest.mark.guarantee("training-hangs")
@pytest.mark.thorough
async def test_hanging_training_is_restarted_and_its_next_step_ends_the_stall(
    tmp_path: Path,
) -> None:
    options = ("--standalone", "--min=2", "--stall-seconds=2", "--on-stall=Restart")
    async with run_master(tmp_path, *options) as master, master.channel() as channel:
        agents = await joined(channel, 2)
        for number in (1, 2, 3):
            await step(agents, number)
        async with alive(agents):
            published = await until(
                "the stall is seen", progress(channel), lambda found: found.stalled_since
            )
            assert published.stalled_since == published.last_report_time
            await until(
                "all processes are restarted",
                lambda: all(agent.running == 2 for agent in agents),
            )
        stops = [
            command for agent in agents for command in agent.commands if command.HasField("stop")
        ]
        assert len(stops) == 2
        assert (await progress(channel)()).stalled_since, "as long as no step is finished"
        await step(agents, 3)
        await until(
            "a step ends the stall", progress(channel), lambda found: not found.stalled_since
        )
        history = await JobServiceStub(channel).GetHistory(job_pb2.GetHistoryRequest())
        reasons = [event.reason for event in history.events]
        found = [
            reason for reason in reasons if reason in ("Stalled", "RestartedForStall", "Resumed")
        ]
        assert found == ["Stalled", "RestartedForStall", "Resumed"]


@pytest.mark.guarantee("master-can-be-replaced")
@pytest.mark.thorough
async def test_a_new_master_knows_its_predecessors_stall_and_stragglers(tmp_path: Path) -> None:
    kept = f"--state-file={tmp_path / 'state'}"
    options = ("--standalone", "--min=3", "--stall-seconds=2", "--straggler-seconds=1", kept)
    number = 0
    own = {0: 0.01, 1: 0.01, 2: 0.09}
    async with run_master(tmp_path, *options) as master:
        async with master.channel() as channel:
            agents = await joined(channel, 3)

            async def look() -> job_pb2.Progress:
                nonlocal number
                number += 1
                await step(agents, number, own=own)
                return await progress(channel)()

            published = await until("the straggler is seen", look, lambda found: found.stragglers)
            assert list(published.stragglers) == [agents[2].name]
            listed = await JobServiceStub(channel).GetMembers(job_pb2.GetMembersRequest())
            assert [member.straggler for member in listed.members] == [False, False, True]
            assert 0.08 < listed.members[2].step_seconds < 0.1
            async with alive(agents):
                before = await until(
                    "the stall is seen", progress(channel), lambda found: found.stalled_since
                )
        await until(
            "the stall is stored",
            lambda: stored(tmp_path / "state").stall.since == before.stalled_since,
        )
        await master.kill()
    async with run_master(tmp_path, *options) as master, master.channel() as channel:
        after = await until(
            "the straggler is known", progress(channel), lambda found: found.stragglers
        )
        assert after.stalled_since == before.stalled_since
        agents = [Agent(index, running=1) for index in range(3)]
        for agent in agents:
            await agent.join(channel)
        await step(agents, number + 1)
        await until(
            "a step ends the stall", progress(channel), lambda found: not found.stalled_since
        )
