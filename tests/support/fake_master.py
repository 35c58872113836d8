"""Runs a master whose commands a test sends by hand, for tests of the agent's process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import pytest
from elasticjob_api import names, packed_worlds
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_api.v1 import (
    agent_pb2_grpc,
    discovery_pb2,
    discovery_pb2_grpc,
    shards_pb2,
    shards_pb2_grpc,
)

from tests.support.agent_process import AgentProcess
from tests.support.wait import SECONDS


@dataclass
class Received:
    """The messages of one agent, of all its streams."""

    messages: list[pb.AgentMessage] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    stream: Any = None

    def of_kind(self, kind: str) -> list[Any]:
        return [
            getattr(message, kind)
            for message in self.messages
            if message.WhichOneof("message") == kind
        ]

    async def wait(self, what: Callable[[Received], Any]) -> Any:
        async def found() -> Any:
            async with self.changed:
                await self.changed.wait_for(lambda: what(self))
                return what(self)

        try:
            return await asyncio.wait_for(found(), SECONDS)
        except TimeoutError:
            kinds = [m for m in self.messages if m.WhichOneof("message") != "heartbeat"]
            pytest.fail(
                f"within {SECONDS:g} s the agent has not sent the expected message; it sent {kinds}"
            )


class FakeMaster(
    agent_pb2_grpc.AgentServiceServicer,
    discovery_pb2_grpc.DiscoveryServiceServicer,
    shards_pb2_grpc.ShardServiceServicer,
):
    """A master that sends the commands that a test requests."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.received = Received()
        self.imports = b""
        self.registered: list[pb.RegisterRequest] = []
        self.next_shard = 0
        self.leases: list[shards_pb2.LeaseShardsRequest] = []
        self.answers_lost = 0
        self.hosts = discovery_pb2.HostList(
            version=1, hosts=[discovery_pb2.Host(name="job-worker-0", slots=2)]
        )
        self.answers_watches = True
        self._hosts_changed = asyncio.Event()
        self._markers = 0
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        self._server = grpc.aio.server()
        agent_pb2_grpc.add_AgentServiceServicer_to_server(self, self._server)
        shards_pb2_grpc.add_ShardServiceServicer_to_server(self, self._server)
        discovery_pb2_grpc.add_DiscoveryServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"{self.host}:{names.GRPC_PORT}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None
        self.received.stream = None

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterResponse:
        self.registered.append(request)
        return pb.RegisterResponse(heartbeat_seconds=0.1, lost_seconds=5)

    async def GetImports(self, request: Any, context: Any) -> pb.GetImportsResponse:
        return pb.GetImportsResponse(plan=self.imports)

    async def Connect(self, requests: AsyncIterator[pb.AgentMessage], context: Any) -> None:  # type: ignore[override]
        self.received.stream = context
        async for message in requests:
            async with self.received.changed:
                self.received.messages.append(message)
                self.received.changed.notify_all()

    async def CreateDataset(self, request: Any, context: Any) -> shards_pb2.CreateDatasetResponse:
        return shards_pb2.CreateDatasetResponse(
            shards=-(-request.size // request.shard_size) * request.epochs
        )

    async def LeaseShards(self, request: Any, context: Any) -> shards_pb2.LeaseShardsResponse:
        self.leases.append(request)
        if len(self.leases) <= self.answers_lost:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "killed before the answer was out")
        ids = range(self.next_shard, min(self.next_shard + request.count, 10))
        self.next_shard = ids.stop
        shards = [shards_pb2.Shard(id=n, epoch=0, start=10 * n, end=10 * n + 10) for n in ids]
        return shards_pb2.LeaseShardsResponse(shards=shards, finished=False)

    async def ReportShards(self, request: Any, context: Any) -> shards_pb2.ReportShardsResponse:
        return shards_pb2.ReportShardsResponse()

    async def GetHosts(self, request: Any, context: Any) -> discovery_pb2.HostList:
        return self.hosts

    async def WatchHosts(self, request: Any, context: Any) -> AsyncIterator[discovery_pb2.HostList]:
        while True:
            changed = self._hosts_changed
            if self.answers_watches:
                yield self.hosts
            await changed.wait()

    def publish(self, *hosts: discovery_pb2.Host) -> None:
        self.hosts = discovery_pb2.HostList(version=self.hosts.version + 1, hosts=hosts)
        self._hosts_changed.set()
        self._hosts_changed = asyncio.Event()

    async def order(self, **command: Any) -> None:
        await self.received.wait(lambda received: received.stream)
        await self.received.stream.write(pb.MasterMessage(**command))

    async def handled(self) -> None:
        """Wait until the agent has handled all commands, and its earlier messages have arrived."""
        self._markers += 1
        marker = f"marker-{self._markers}"
        await self.order(run_script=pb.RunScript(id=marker, script="true", timeout_seconds=SECONDS))
        await self.received.wait(
            lambda received: [s for s in received.of_kind("script") if s.id == marker]
        )

    async def begin(self, round_: int, **environment: str) -> None:
        world = pb.World(round=round_, members=[pb.Member(pod_name="job-worker-0")])
        packed = packed_worlds.pack(world)
        await self.order(start=pb.Start(packed_world=packed, rank=0, environment=environment))
        await self.received.wait(
            lambda received: [s for s in received.of_kind("started") if s.round == round_]
        )

    async def exited(self, round_: int) -> pb.ProcessExited:
        exits: list[pb.ProcessExited] = await self.received.wait(
            lambda received: [e for e in received.of_kind("exited") if e.round == round_]
        )
        return exits[0]

    async def dismiss(self, agent: AgentProcess) -> tuple[int, str, str]:
        """Order an agent to exit; return its exit code, output and error output."""
        await self.order(exit=pb.Exit())
        return await agent.end()

    async def complete(self, agent: AgentProcess) -> tuple[str, str]:
        """Let an agent's command succeed in the first world; return its output and error output."""
        await self.begin(1)
        exited = await self.exited(1)
        code, out, err = await self.dismiss(agent)
        assert (exited.exit_code, code) == (0, 0), err
        return out, err
