"""Simulates thousands of agents, each with its own connection, at the least possible CPU.

They register, open their stream, confirm each Start, and send heartbeats.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from elasticjob_api.v1 import agent_pb2 as pb

from bench.grpc_client import Connection, ConnectionBroken
from bench.servers import Server

HEARTBEAT = pb.AgentMessage(
    heartbeat=pb.Heartbeat(
        usage=pb.ResourceUsage(cpu_cores=3.25, memory_bytes=6_442_450_944, gpu_percent=93)
    )
).SerializeToString()
_REGISTER = "/elasticjob.v1.AgentService/Register"
_CONNECT = "/elasticjob.v1.AgentService/Connect"
_HEALTH = "/grpc.health.v1.Health/Check"
_CONCURRENT_JOINS = 64
_JOIN_BATCH = 1000
_ROUNDS_AHEAD = 3
_TICK_SECONDS = 0.005
_TIMEOUT_SECONDS = 60.0
_START = pb.MasterMessage.DESCRIPTOR.fields_by_name["start"].number << 3 | 2


@dataclass
class Agent:
    """One simulated agent.

    Attributes:
        stream: the number of its `Connect` call.
        started_at: when the last Start arrived, by `time.perf_counter`.
        stream_ended: whether the server has ended the call.
    """

    index: int
    connection: Connection
    stream: int = 0
    started_at: float = 0.0
    stream_ended: bool = False

    async def register(self) -> None:
        """Become a member."""
        await register(self.connection, f"bench-worker-{self.index}", self.index)

    @property
    def uid(self) -> str:
        """Its pod's UID."""
        return _uid(self.index)

    def open(self) -> None:
        """Open the stream."""
        self.stream = self.connection.call(_CONNECT, self._on_message)
        hello = pb.Hello(pod_uid=self.uid, reads_packed_worlds=True, fetches_worlds=True)
        self.send(pb.AgentMessage(hello=hello).SerializeToString())

    def send(self, message: bytes) -> None:
        """Send a message on the stream."""
        self.connection.send(self.stream, message)

    def _on_message(self, message: bytes | None) -> None:
        if message is None:
            self.stream_ended = True
        elif _is_start(message):
            self.started_at = time.perf_counter()
            # Only one world is ever formed here, so it need not be read out of a message of a
            # hundred kilobytes.
            self.send(pb.AgentMessage(started=pb.ProcessStarted(round=1)).SerializeToString())


@dataclass
class AgentGroup:
    """The agents of one server, and a separate connection that measures the server's latency."""

    agents: list[Agent]
    control: Connection

    async def join(self, server: Server, number: int) -> None:
        """Connect more agents until there are `number`."""
        slots = asyncio.Semaphore(_CONCURRENT_JOINS)

        async def one(index: int) -> Agent:
            async with slots:
                agent = Agent(index, await server.connect())
                await agent.register()
                agent.open()
                return agent

        self.agents += await asyncio.gather(*map(one, range(len(self.agents), number)))

    def send_heartbeats(self) -> None:
        """Send a heartbeat from every agent."""
        for agent in self.agents:
            agent.send(HEARTBEAT)

    async def max_heartbeats_per_second(self, seconds: float) -> float:
        """Return how many heartbeats the server takes in a second.

        Every round of heartbeats is followed by a health check, which is answered after them; so
        never more than a few rounds are under way, and each heartbeat is a separate packet, as
        from real agents.
        """
        await self.measure_latency()
        began = time.perf_counter()
        rounds = 0
        asked = deque[asyncio.Task[float]]()
        while time.perf_counter() - began < seconds:
            if len(asked) >= _ROUNDS_AHEAD:
                await asked.popleft()
            self.send_heartbeats()
            asked.append(asyncio.create_task(self.measure_latency()))
            await asyncio.sleep(0)
            rounds += 1
        await asyncio.gather(*asked)
        self.check()
        return rounds * len(self.agents) / (time.perf_counter() - began)

    async def send_at_rate(self, per_second: int, seconds: float) -> None:
        """Send this many heartbeats every second, evenly."""
        began = time.perf_counter()
        sent = 0
        while (elapsed := time.perf_counter() - began) < seconds:
            for number in range(sent, int(elapsed * per_second)):
                self.agents[number % len(self.agents)].send(HEARTBEAT)
                sent = number + 1
            await asyncio.sleep(_TICK_SECONDS)
        self.check()

    async def measure_latencies(self, seconds: float) -> list[float]:
        """Send health checks at an even rate; return the seconds that each answer took."""
        asked = list[asyncio.Task[float]]()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            asked.append(asyncio.create_task(self.measure_latency()))
            await asyncio.sleep(2 * _TICK_SECONDS)
        return await asyncio.gather(*asked)

    async def wait_until_started(self) -> float:
        """Wait until every agent has received a Start; return when the last one did."""
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            while not all(agent.started_at for agent in self.agents):
                self.check()
                await asyncio.sleep(0.02)
        return max(agent.started_at for agent in self.agents)

    async def measure_latency(self) -> float:
        """Return the seconds until the server has answered a health check."""
        return await health_seconds(self.control)

    def check(self) -> None:
        """Raise `ConnectionBroken` when an agent's stream has ended."""
        if ended := [agent.index for agent in self.agents if agent.stream_ended]:
            raise ConnectionBroken(
                f"{len(ended)} streams have ended, the first is that of agent {ended[0]}"
            )

    def close(self) -> None:
        """Close all connections without ending the calls."""
        for connection in (self.control, *(agent.connection for agent in self.agents)):
            connection.close()


@asynccontextmanager
async def agent_group(server: Server, number: int) -> AsyncIterator[AgentGroup]:
    """Connect this many agents; their connections are closed at the end."""
    group = AgentGroup([], await server.connect())
    try:
        await group.measure_latency()  # shows the token: a stranger's connection is closed in time
        while (first := len(group.agents)) < number:
            await group.join(server, min(first + _JOIN_BATCH, number))
            group.send_heartbeats()  # the first ones have sent nothing since they joined
        yield group
    finally:
        group.close()


async def health_seconds(connection: Connection) -> float:
    """Return the seconds until the server has answered a health check."""
    began = time.perf_counter()
    await connection.ask(_HEALTH, b"")
    return time.perf_counter() - began


async def register(connection: Connection, pod_name: str, index: int) -> None:
    """Register a pod as a member."""
    request = pb.RegisterRequest(
        pod_name=pod_name,
        pod_uid=_uid(index),
        role="worker",
        index=index,
        address=f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}",
        node_name=f"node-{index // 8}",
        slots=8,
    )
    await connection.ask(_REGISTER, request.SerializeToString())


def _uid(index: int) -> str:
    return f"00000000-0000-4000-8000-{index:012d}"


def _is_start(message: bytes) -> bool:
    """Return whether a MasterMessage is a Start: its tag follows the command's number."""
    at = 0
    if message[:1] == b"\x08":
        at = 1
        while message[at] & 0x80:
            at += 1
        at += 1
    return message[at : at + 1] == bytes((_START,))
