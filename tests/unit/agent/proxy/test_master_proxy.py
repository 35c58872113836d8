"""The lists of members that a Start has left out, as the agent fetches them for its processes."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio
import pytest
from elasticjob_agent.proxy import master_proxy
from elasticjob_agent.proxy.master_call import CallError
from elasticjob_api import packed_worlds
from elasticjob_api.v1 import agent_pb2 as pb

LIST = pb.World(round=3, members=[pb.Member(pod_name=f"job-worker-{i}") for i in range(3)])


def started(whole: pb.World) -> pb.World:
    """Return the world of a Start without the list."""
    digest = packed_worlds.digest(whole)
    return pb.World(round=3, members=whole.members[:1], member_count=3, digest=digest)


class Master:
    """Knows one list."""

    def __init__(self) -> None:
        self.asked = 0

    async def GetWorldOfRound(
        self, request: pb.GetWorldOfRoundRequest, **options: Any
    ) -> pb.GetWorldOfRoundResponse:
        self.asked += 1
        assert request.round == 3
        return pb.GetWorldOfRoundResponse(packed_world=packed_worlds.pack(LIST))


@pytest.mark.guarantee("lists-of-large-worlds")
async def test_processes_share_one_fetch_and_get_no_other_list_than_that_of_their_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master = Master()
    monkeypatch.setattr(master_proxy, "AgentServiceStub", lambda channel: master)
    async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
        proxy = master_proxy.MasterProxy(channel, "uid-0", {})
        assert await proxy.members(LIST) == LIST.members
        assert master.asked == 0
        other = pb.World(round=3, members=reversed(LIST.members))
        with pytest.raises(CallError, match="does not know the members of round 3"):
            await proxy.members(started(other))
        lists = await asyncio.gather(*[proxy.members(started(LIST)) for _ in range(4)])
        assert all(each == LIST.members for each in lists)
        assert master.asked == 2
