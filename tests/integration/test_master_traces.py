"""A real master sends the spans of its worlds to a played collector."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from elasticjob_api.traces import context_of_job
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_localcluster.controlplane.ports import free_port

from tests.support.collector import played_collector
from tests.support.grpc_agent import Agent, world_of_two
from tests.support.master_process import STANDALONE, run_master
from tests.support.wait import until

JOB = context_of_job("00000000-0000-4000-8000-000000000001", "")


def traced(endpoint: str) -> dict[str, str]:
    return {
        "TRACEPARENT": JOB.header,
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_BSP_SCHEDULE_DELAY": "50",
    }


async def step(agent: Agent, number: int) -> None:
    report = pb.StepReport(round=agent.running, step=number, steps=1, samples=1)
    await agent.send(step=report)


@pytest.mark.guarantee("collector-lost")
async def test_a_later_master_repeats_no_span_and_sends_those_of_its_own_worlds(
    tmp_path: Path,
) -> None:
    state = f"--state-file={tmp_path / 'state'}"
    async with played_collector() as collector:
        env = traced(collector.endpoint)
        first_steps = partial(collector.named, "first step")
        async with (
            run_master(tmp_path, *STANDALONE, state, env=env) as master,
            master.channel() as channel,
        ):
            agents = await world_of_two(channel)
            await step(agents[0], 1)
            await until("a first step", first_steps)
            await step(agents[0], 2)
        before = len(collector.spans)
        async with (
            run_master(tmp_path, *STANDALONE, state, env=env) as master,
            master.channel() as channel,
        ):
            for agent in agents:
                await agent.join(channel)
            await step(agents[0], 3)
            third = await Agent(1, incarnation=1).join(channel)
            await until("the next world", lambda: third.running == agents[0].running > 1)
            await step(agents[0], 4)
            await until("its first step", first_steps, lambda found: len(found) > 1)
    later = collector.spans[before:]
    identifiers = [each.span["spanId"] for each in collector.spans]
    assert len(set(identifiers)) == len(identifiers), collector.shown()
    assert sorted(each.span["name"] for each in later) == ["agent", "first step", "world"]
    world = collector.named("world")[-1]
    assert world.attributes["elasticjob.reason"] == "1 joined, 1 left"
    assert collector.named("first step")[-1].attributes["elasticjob.step"] == "4"


@pytest.mark.guarantee("collector-lost")
async def test_a_master_whose_collector_does_not_answer_trains_and_ends(tmp_path: Path) -> None:
    env = traced(f"http://127.0.0.1:{free_port()}")
    async with (
        run_master(tmp_path, *STANDALONE, env=env) as master,
        master.channel() as channel,
    ):
        await world_of_two(channel)
        await master.logged("opentelemetry")
