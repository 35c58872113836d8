"""The baseline for the master: a gRPC server that only counts the agents' messages.

A separate process (`python -m bench.bare_server`), with the master's event loop, certificate and
message types. It is configured by its environment, as the master is, and prints its port.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import grpc
import grpc.aio
import uvloop
from elasticjob_api import names, packed_worlds
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_api.v1 import shards_pb2
from elasticjob_api.v1.agent_pb2_grpc import (
    AgentServiceServicer,
    add_AgentServiceServicer_to_server,
)
from elasticjob_api.v1.shards_pb2_grpc import (
    ShardServiceServicer,
    add_ShardServiceServicer_to_server,
)
from grpc_health.v1 import health, health_pb2_grpc

WORLD = "world"
"""A registration under this pod name waits for `index` streams, then sends a Start with a world of
all to each.
"""


class CountingAgentService(AgentServiceServicer):
    """Counts messages, and sends one prepared message to all streams on request."""

    def __init__(self) -> None:
        self.counted = 0
        self._streams: list[Any] = []
        self._opened = asyncio.Semaphore(0)

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.RegisterResponse:  # noqa: D102
        if request.pod_name == WORLD:
            for _ in range(request.index):
                await self._opened.acquire()
            member = pb.Member(
                pod_name="bench-worker-1000",
                pod_uid=request.pod_uid,
                role="worker",
                address="10.0.9.9",
            )
            world = pb.World(round=1, members=[member] * len(self._streams))
            message = pb.MasterMessage(start=pb.Start(packed_world=packed_worlds.pack(world)))
            await asyncio.gather(*(stream.write(message) for stream in self._streams))
        return pb.RegisterResponse(heartbeat_seconds=2.0)

    async def GetImports(self, request: Any, context: Any) -> pb.GetImportsResponse:  # noqa: D102
        return pb.GetImportsResponse()

    async def Connect(self, messages: Any, context: Any) -> None:  # type: ignore[override]  # noqa: D102
        self._streams.append(context)
        self._opened.release()
        while (await context.read()) is not grpc.aio.EOF:
            self.counted += 1
        self._streams.remove(context)


class CountingShardService(ShardServiceServicer):
    """Leases consecutive numbers and accepts every report."""

    def __init__(self) -> None:
        self._next = 0
        self.reported = 0

    async def CreateDataset(self, request: shards_pb2.CreateDatasetRequest, context: Any) -> Any:  # noqa: D102
        return shards_pb2.CreateDatasetResponse(shards=2**32)

    async def LeaseShards(self, request: shards_pb2.LeaseShardsRequest, context: Any) -> Any:  # noqa: D102
        first = self._next
        self._next = self._next + request.count
        leased = [
            shards_pb2.Shard(id=each, start=256 * each, end=256 * each + 256)
            for each in range(first, self._next)
        ]
        return shards_pb2.LeaseShardsResponse(shards=leased)

    async def ReportShards(self, request: shards_pb2.ReportShardsRequest, context: Any) -> Any:  # noqa: D102
        self.reported += len(request.done)
        return shards_pb2.ReportShardsResponse()


async def serve() -> None:
    """Serve for ever."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    add_AgentServiceServicer_to_server(CountingAgentService(), server)  # type: ignore[abstract]
    add_ShardServiceServicer_to_server(CountingShardService(), server)  # type: ignore[abstract]
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    pair = (os.environ[names.ENV_TLS_KEY].encode(), os.environ[names.ENV_TLS_CERT].encode())
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
    await server.start()
    sys.stderr.write(f"gRPC on 127.0.0.1:{port}, no HTTP\n")
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve())
