"""The agent's account of the shards that its processes hold."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import grpc.aio
import pytest
from elasticjob_agent.proxy import shards
from elasticjob_api.v1 import shards_pb2 as pb
from elasticjob_api.v1.agent_pb2 import World


class Master:
    """Leases shards 0 to 3 and answers no report."""

    def __init__(self, channel: object) -> None:
        self.reported = asyncio.Event()

    async def LeaseShards(self, request: object, **options: Any) -> pb.LeaseShardsResponse:
        return pb.LeaseShardsResponse(shards=[pb.Shard(id=number) for number in range(4)])

    async def ReportShards(self, request: object, **options: Any) -> pb.ReportShardsResponse:
        self.reported.set()
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.guarantee("older-state-of-the-master")
@pytest.mark.parametrize("how", ["report", "end"])
async def test_shards_on_their_way_back_are_among_those_reported_to_the_next_master(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Otherwise they are leased to another process of the pod before the return arrives."""
    master = Master(None)
    monkeypatch.setattr(shards, "ShardServiceStub", lambda channel: master)
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        proxy = shards.ShardProxy(channel, "uid-0")
        caller = shards.Caller(3, World(round=3))
        await proxy.handlers["lease_shards"]({"dataset": "d", "count": 4}, caller)
        returning: Awaitable[object]
        if how == "report":
            request = {"dataset": "d", "returned": [1, 2]}
            returning = proxy.handlers["report_shards"](request, caller)
        else:
            returning = proxy.disconnected(caller)
        report = asyncio.ensure_future(returning)
        await master.reported.wait()
        account = {(each.ended, *each.shards) for each in proxy.leased()}
        report.cancel()
    expected = {(False, 0, 3), (True, 1, 2)} if how == "report" else {(True, 0, 1, 2, 3)}
    assert account == expected
