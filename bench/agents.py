"""Agents by the hundred and the thousand, each with a connection of its own, as cheap as can be.

They register, open their stream, confirm each Start, and send what they are told to.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from elasticjob_api.v1 import agent_pb2 as pb

from bench.servers import Server
from bench.wire import Broken, Connection

HEARTBEAT = pb.AgentMessage(
    heartbeat=pb.Heartbeat(usage=pb.ResourceUsage(cpu_cores=3.25, memory_bytes=6_442_450_944, gpu_percent=93))
).SerializeToString()
_REGISTER = "/elasticjob.v1.AgentService/Register"
_CONNECT = "/elasticjob.v1.AgentService/Connect"
_HEALTH = "/grpc.health.v1.Health/Check"
_JOINING_AT_ONCE = 64
_WORD_EVERY = 1000
_ROUNDS_AHEAD = 3
_TICK_SECONDS = 0.005
_PATIENCE_SECONDS = 60.0
_START = pb.MasterMessage.DESCRIPTOR.fields_by_name["start"].number << 3 | 2


@dataclass
class Agent:
    """One agent.

    Attributes:
        started_at: when the last Start had arrived; of `time.perf_counter`.
    """

    index: int
    connection: Connection
    stream: int = 0
    started_at: float = 0.0
    gone: bool = False

    async def register(self) -> None:
        """Become a member."""
        await register(self.connection, f"bench-worker-{self.index}", self.index)

    @property
    def uid(self) -> str:
        """Its pod's UID."""
        return _uid(self.index)

    def open(self) -> None:
        """Open the stream."""
        self.stream = self.connection.call(_CONNECT, self._take)
        self.send(pb.AgentMessage(hello=pb.Hello(pod_uid=self.uid)).SerializeToString())

    def send(self, message: bytes) -> None:
        """Send a message on the stream."""
        self.connection.send(self.stream, message)

    def _take(self, message: bytes | None) -> None:
        if message is None:
            self.gone = True
        elif _is_start(message):
            self.started_at = time.perf_counter()
            # Only one world is ever formed here, so it need not be read out of a message of a hundred kilobytes.
            self.send(pb.AgentMessage(started=pb.ProcessStarted(round=1)).SerializeToString())


@dataclass
class Crowd:
    """The agents of one server, and a connection beside them that asks whether it keeps up."""

    agents: list[Agent]
    fence: Connection

    async def join(self, server: Server, number: int) -> None:
        """Let more agents join until there are so many."""
        places = asyncio.Semaphore(_JOINING_AT_ONCE)

        async def one(index: int) -> Agent:
            async with places:
                agent = Agent(index, await server.connect())
                await agent.register()
                agent.open()
                return agent

        self.agents += await asyncio.gather(*map(one, range(len(self.agents), number)))

    def beat(self) -> None:
        """Let every agent send a heartbeat."""
        for agent in self.agents:
            agent.send(HEARTBEAT)

    async def most_per_second(self, seconds: float) -> float:
        """Return how many heartbeats the server takes in a second.

        Every round of heartbeats is followed by a small question, which is answered after what came before it; so
        never more than a few rounds are under way, and each heartbeat travels alone as those of real agents do.
        """
        await self.echo()
        began, rounds, asked = time.perf_counter(), 0, deque[asyncio.Task[float]]()
        while time.perf_counter() - began < seconds:
            if len(asked) >= _ROUNDS_AHEAD:
                await asked.popleft()
            self.beat()
            asked.append(asyncio.create_task(self.echo()))
            await asyncio.sleep(0)
            rounds += 1
        await asyncio.gather(*asked)
        self.check()
        return rounds * len(self.agents) / (time.perf_counter() - began)

    async def steadily(self, per_second: int, seconds: float) -> None:
        """Send so many heartbeats every second, evenly."""
        began, sent = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - began) < seconds:
            for number in range(sent, int(elapsed * per_second)):
                self.agents[number % len(self.agents)].send(HEARTBEAT)
                sent = number + 1
            await asyncio.sleep(_TICK_SECONDS)
        self.check()

    async def echoes(self, seconds: float) -> list[float]:
        """Ask many times, evenly; return how long each answer took."""
        asked, end = list[asyncio.Task[float]](), time.perf_counter() + seconds
        while time.perf_counter() < end:
            asked.append(asyncio.create_task(self.echo()))
            await asyncio.sleep(2 * _TICK_SECONDS)
        return await asyncio.gather(*asked)

    async def started(self) -> float:
        """Wait until every agent has been told to start; return when the last one was."""
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not all(agent.started_at for agent in self.agents):
                self.check()
                await asyncio.sleep(0.02)
        return max(agent.started_at for agent in self.agents)

    async def echo(self) -> float:
        """Return the seconds until the server has answered a small question."""
        began = time.perf_counter()
        await self.fence.ask(_HEALTH, b"")
        return time.perf_counter() - began

    def check(self) -> None:
        """Raise `Broken` when an agent's stream has ended."""
        if gone := [agent.index for agent in self.agents if agent.gone]:
            raise Broken(f"{len(gone)} streams have ended, the first is that of agent {gone[0]}")

    def close(self) -> None:
        """Go without a word."""
        for connection in (self.fence, *(agent.connection for agent in self.agents)):
            connection.close()


@asynccontextmanager
async def crowd(server: Server, number: int) -> AsyncIterator[Crowd]:
    """Let so many agents join; they go without a word at the end."""
    together = Crowd([], await server.connect())
    try:
        while (first := len(together.agents)) < number:
            await together.join(server, min(first + _WORD_EVERY, number))
            together.beat()  # who joined first has been silent for a while
        yield together
    finally:
        together.close()


async def register(connection: Connection, pod_name: str, index: int) -> None:
    """Make a pod a member."""
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
    """Tell whether a MasterMessage is a Start: its tag follows the command's number."""
    at = 0
    if message[:1] == b"\x08":
        at = 1
        while message[at] & 0x80:
            at += 1
        at += 1
    return message[at : at + 1] == bytes((_START,))
