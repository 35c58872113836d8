"""Plays an agent whose messages a test sends by hand, for tests of the master's process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_api.v1.agent_pb2_grpc import AgentServiceStub

from tests.support.wait import until

SECONDS = 20.0


@dataclass
class Agent:
    """A played agent.

    Registered and connected, it follows the master's commands without a real process.
    """

    index: int
    incarnation: int = 0
    slots: int = 1
    role: str = "worker"
    running: int = 0
    commands: list[pb.MasterMessage] = field(default_factory=list)
    started: list[pb.Start] = field(default_factory=list)
    leased: list[pb.LeasedShards] | None = None
    stream: Any = None
    task: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def uid(self) -> str:
        """Return its pod's UID."""
        return f"uid-{self.index}-{self.incarnation}"

    @property
    def name(self) -> str:
        """Return its pod's name."""
        return names.member_pod("job", self.role, self.index, self.incarnation)

    def registration(self) -> pb.RegisterRequest:
        """Return its registration."""
        return pb.RegisterRequest(
            pod_name=self.name,
            pod_uid=self.uid,
            role=self.role,
            index=self.index,
            incarnation=self.incarnation,
            address=f"127.0.1.{self.index + 1}",
            slots=self.slots,
        )

    async def join(self, channel: grpc.aio.Channel, *, follow_commands: bool = True) -> Agent:
        """Register, open the stream, and follow the master's commands (or only record them)."""
        stub = AgentServiceStub(channel)
        await stub.Register(self.registration(), timeout=SECONDS, wait_for_ready=True)
        self.stream = stub.Connect()
        await self.send(
            hello=pb.Hello(
                pod_uid=self.uid,
                running_round=self.running,
                leased=self.leased or (),
                leased_all=self.leased is not None,
            )
        )
        self.task = asyncio.create_task(self._listen(self.stream, follow_commands))
        return self

    async def send(self, **message: Any) -> None:
        """Send one message, also if the sender is cancelled, which would break off the stream."""
        await asyncio.shield(self._write(pb.AgentMessage(**message)))

    async def _write(self, message: pb.AgentMessage) -> None:
        """Write a message; grpc accepts one at a time."""
        async with self.sending:
            await self.stream.write(message)

    async def _listen(self, stream: Any, follow_commands: bool) -> None:
        try:
            async for command in stream:
                self.commands.append(command)
                if follow_commands:
                    await self._follow_command(command)
        except grpc.aio.AioRpcError:
            return

    async def _follow_command(self, command: pb.MasterMessage) -> None:
        kind = command.WhichOneof("command")
        if kind == "start":
            self.running = command.start.world.round
            self.started.append(command.start)
            await self.send(started=pb.ProcessStarted(round=self.running))
        elif kind in ("stop", "drain") and self.running:
            ended = self.running
            self.running = 0
            await self.send(exited=pb.ProcessExited(round=ended, asked=True))
        elif kind == "collect_stacks":
            stack = pb.ProcessStack(frames=["train (train.py:1)"])
            number = command.collect_stacks.number
            await self.send(stacks=pb.Stacks(number=number, processes=[stack]))
        if kind in ("drain", "exit"):
            await self.stream.done_writing()
            self.ended.set()

    async def heartbeat(self) -> None:
        """Send a heartbeat."""
        await self.send(
            heartbeat=pb.Heartbeat(usage=pb.ResourceUsage(cpu_cores=0.5, memory_bytes=1000))
        )

    async def leave(self) -> None:
        """Break the stream, as a lost pod does."""
        self.stream.cancel()
        if self.task is not None:
            await asyncio.wait({self.task})


async def world_of_two(channel: grpc.aio.Channel) -> list[Agent]:
    """Return two agents, of which the master has formed its first world."""
    first = await Agent(0).join(channel)
    second = await Agent(1).join(channel)
    await until("a world of two", lambda: first.running == second.running == 1)
    return [first, second]
