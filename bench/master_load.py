"""Measures the master under thousands of agents against a bare gRPC server under the same load.

Every agent has its own TLS connection and shows the job's token, on both sides; the load comes
from this process. The two servers are measured in turn, so that other load on the machine affects
both.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import quantiles

import uvloop
from elasticjob_api.step_report import report_of
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous.member_events import MemberConnected
from elasticjob_master.core.rendezvous.members import Identity, Member

from bench import servers
from bench.agents import AgentGroup, agent_group, health_seconds, register
from bench.bare_server import WORLD
from bench.bench_cluster import BenchCluster
from bench.figure import Result, in_turn, ratio_of
from bench.servers import Server

_AGENTS = 1000
_MEMORY_AGENTS = 10_000
_BASELINE_AGENTS = 1000
_PER_SECOND = 1000
_ROUNDS = 3
_MEMBERS = (10, 1000)
_QUERY_SECONDS = 0.01
"""Between two health checks."""


async def heartbeats_per_s() -> Result:
    """The most heartbeats that the master takes in a second, from 1,000 agents in one world."""
    return Result(*await _both(_max_rate), "heartbeats/s")


async def heartbeat_ratio() -> Result:
    """The same, over what the bare server takes."""
    return ratio_of(*await _both(_max_rate), "master's heartbeats/s over a bare stream's")


async def _max_rate(server: Server, agents: AgentGroup) -> float:
    return await agents.max_heartbeats_per_second(3.0)


async def cpu_1000() -> Result:
    """Measure the part of one core that the master uses for 1,000 heartbeats/s of 1,000 agents.

    All its threads are counted.
    """

    async def used(server: Server, agents: AgentGroup) -> float:
        before = server.cpu_seconds()
        began = time.perf_counter()
        await agents.send_at_rate(_PER_SECOND, 5.0)
        return 100 * (server.cpu_seconds() - before) / (time.perf_counter() - began)

    return Result(*await _both(used), "% of a core")


async def heartbeat_p99() -> Result:
    """Measure the time of a health check during 1,000 heartbeats/s.

    A heartbeat itself is not acknowledged.
    The check and its answer wait in the same queues as a heartbeat, so no heartbeat waits longer.
    """

    async def answer_ms(server: Server, agents: AgentGroup) -> float:
        answers, _ = await asyncio.gather(
            agents.measure_latencies(5.0), agents.send_at_rate(_PER_SECOND, 5.0)
        )
        return _p99_ms(answers)

    return Result(*await _both(answer_ms), "ms")


def _p99_ms(seconds: list[float]) -> float:
    return 1000 * quantiles(seconds, n=100)[98]


async def agent_kib() -> Result:
    """Measure the master's memory for each of 10,000 agents.

    The agents have sent 1,000 heartbeats/s for some seconds, of which none was lost.
    """
    async with servers.bare() as server:
        raw = await _kib_per_agent(server, _BASELINE_AGENTS)
    async with servers.master(workers=_MEMORY_AGENTS + 1) as server:
        ours = await _kib_per_agent(server, _MEMORY_AGENTS)
    return Result([ours], [raw], "KiB")


async def rendezvous_1000() -> Result:
    """From the last of 1,000 joins until the last member has received the world."""
    worlds = [await _worlds(_AGENTS) for _ in range(_ROUNDS)]
    ours = [formed.seconds for formed, _ in worlds]
    return Result(ours, [bare.seconds for _, bare in worlds], "s")


async def rendezvous_10000() -> Result:
    """The same with 10,000."""
    ours, bare = await _worlds(_MEMORY_AGENTS)
    return Result([ours.seconds], [bare.seconds], "s")


async def query_10000() -> Result:
    """The p99 of a health check from the last of 10,000 joins until the world is received."""
    ours, bare = await _worlds(_MEMORY_AGENTS)
    return Result([_p99_ms(ours.answers)], [_p99_ms(bare.answers)], "ms", n=len(ours.answers))


@dataclass(frozen=True)
class _Formed:
    """How long a world took, and the answers to health checks meanwhile; in seconds."""

    seconds: float
    answers: list[float]


async def _worlds(members: int) -> tuple[_Formed, _Formed]:
    """Form a world of the master, and one of the bare server."""
    async with (
        servers.master(workers=members) as server,
        agent_group(server, members - 1) as agents,
    ):

        async def join() -> float:
            await agents.join(server, members)
            return time.perf_counter()

        ours = await _formed(server, agents, join)
    async with servers.bare() as server, agent_group(server, members) as agents:

        async def ask() -> float:
            asked = time.perf_counter()
            await register(agents.control, WORLD, members)
            return asked

        return ours, await _formed(server, agents, ask)


async def _formed(
    server: Server, agents: AgentGroup, begin: Callable[[], Awaitable[float]]
) -> _Formed:
    """Measure a world; `begin` requests it and returns since when it counts."""
    is_formed = threading.Event()
    # In a thread, because this one is busy with what the members receive.
    answers = asyncio.create_task(asyncio.to_thread(_answers_until, is_formed, server))
    try:
        began = await begin()
        started = await agents.wait_until_started()
    finally:
        is_formed.set()
    return _Formed(started - began, await answers)


def _answers_until(ended: threading.Event, server: Server) -> list[float]:
    async def ask() -> list[float]:
        control = await server.connect()
        asked = list[asyncio.Task[float]]()
        while not ended.is_set():
            asked.append(asyncio.create_task(health_seconds(control)))
            await asyncio.sleep(_QUERY_SECONDS)
        answers = await asyncio.gather(*asked)
        control.close()
        return answers

    return uvloop.run(ask())


async def step_report_us() -> Result:
    """Measure the master's cost of a step report with 1,000 members.

    The limit is the same with 10: it must not differ.
    """
    few, many = ([_report_us(members) for _ in range(2 * _ROUNDS + 1)] for members in _MEMBERS)
    return Result(many, few, "us with 1,000 members")


async def rss(bench: BenchCluster) -> Result:
    """Memory of a job's master, as in a pod, that watches its job at the API server.

    No agent has connected yet.
    """
    async with (
        bench.namespace() as namespace,
        servers.master_of_job(bench, namespace) as ours,
        servers.bare() as raw,
    ):
        await asyncio.sleep(2.0)
        return Result([ours.rss() / 2**20], [raw.rss() / 2**20], "MiB")


async def _both(
    measure: Callable[[Server, AgentGroup], Awaitable[float]],
) -> tuple[list[float], list[float]]:
    """Measure a master whose agents are all in one world, and the bare server with as many."""
    async with (
        servers.master(workers=_AGENTS) as master,
        servers.bare() as bare,
        agent_group(master, _AGENTS) as ours,
        agent_group(bare, _AGENTS) as theirs,
    ):
        await ours.wait_until_started()
        values, limits = await in_turn(
            _ROUNDS, lambda: measure(master, ours), lambda: measure(bare, theirs)
        )
        return values, limits


async def _kib_per_agent(server: Server, number: int) -> float:
    before = server.rss()
    async with agent_group(server, number) as agents:
        await agents.send_at_rate(_PER_SECOND, 5.0)
        await agents.measure_latency()  # the server has read all heartbeats
        return (server.rss() - before) / 1024 / number


def _report_us(members: int) -> float:
    """Return the microseconds of one report, from its bytes to all that follows at once."""
    controller = Controller(framework="jax")
    message = pb.StepReport(
        round=1, step=1, samples=256, seconds=0.2, steps=1, metrics={"loss": 0.5}
    )
    joined = [_join(controller, index) for index in range(members)]
    reports = 10_000
    began = time.perf_counter()
    for number in range(reports):
        message.step = 1 + number // members
        report = report_of(pb.StepReport.FromString(message.SerializeToString()))
        controller.step(joined[number % members], report)
    return 1e6 * (time.perf_counter() - began) / reports


def _join(controller: Controller, index: int) -> Member:
    identity = Identity(
        f"bench-worker-{index}", f"uid-{index}", "worker", index, address="10.0.0.1"
    )
    controller.register(identity)
    event = MemberConnected(identity.pod_uid, running_round=1)
    member = controller.connect(event, lambda _: None)
    assert member is not None
    return member
