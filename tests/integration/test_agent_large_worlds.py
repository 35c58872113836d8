"""Members of a large world start without the list of all, and fetch it when they ask for it."""

from __future__ import annotations

import asyncio
import re
import sys
import textwrap

import grpc
import pytest
from elasticjob_api import names
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_api.v1.agent_pb2_grpc import AgentServiceStub

from tests.support.grpc_agent import SECONDS, Agent
from tests.support.local_job import LocalJob
from tests.support.master_process import channel_to

SCRIPT = """
    import os, time
    import elasticjob

    here, everyone = elasticjob.world(), elasticjob.members()
    assert everyone[here.rank].address == here.address, everyone
    assert elasticjob.agreement.can_stop_together()
    hosts = os.environ.get("ELASTICJOB_WORKER_HOSTS", "")
    pods = ",".join(member.pod for member in everyone)
    print(f"round {here.round}, rank {here.rank} of {here.size}: {pods} hosts={hosts}", flush=True)
    while not elasticjob.should_stop():
        time.sleep(0.05)
    elasticjob.confirm_stop()
"""


@pytest.mark.guarantee("lists-of-large-worlds")
async def test_a_member_of_a_large_world_gets_the_list_of_its_own_round_or_none(
    local_job: LocalJob,
) -> None:
    script = local_job.folder / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    local_job.start_master(3, "--listed-members=2")
    for index in range(2):
        local_job.start_agent(index, sys.executable, "-u", str(script))
    async with channel_to(f"{local_job.host}:{names.GRPC_PORT}") as channel:
        earlier = await Agent(2).join(channel)  # of a version that fetches no list
        await printed(local_job, round_=1, lines=2)
        (start,) = earlier.started
        first = [member.pod_name for member in start.world.members]
        assert sorted(first) == ["job-worker-0", "job-worker-1", "job-worker-2"]
        await earlier.send(leaving=pb.Leaving())
        await asyncio.wait_for(earlier.ended.wait(), SECONDS)
        later = await Agent(2, incarnation=1).join(channel)
        await printed(local_job, round_=2, lines=2)
        second = [member.pod_name for member in later.started[0].world.members]
        assert sorted(second) == ["job-worker-0", "job-worker-1", "job-worker-2-1"]
        fetch = AgentServiceStub(channel).GetWorldOfRound
        for round_, code in (
            (1, grpc.StatusCode.FAILED_PRECONDITION),
            (3, grpc.StatusCode.UNAVAILABLE),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refusal:
                await fetch(pb.GetWorldOfRoundRequest(round=round_), timeout=SECONDS)
            assert refusal.value.code() is code
    pattern = r"^round (\d), rank (\d) of 3: (\S+) hosts=$"
    seen = re.findall(pattern, local_job.log(), re.MULTILINE)
    for number, pods in (("1", first), ("2", second)):
        ranks = {rank: of.split(",") for world, rank, of in seen if world == number}
        assert len(ranks) == 2
        assert all(each == pods for each in ranks.values())


async def printed(job: LocalJob, *, round_: int, lines: int) -> None:
    """Wait until the programs of a round have printed this number of lines."""

    def all_have() -> bool:
        return len(re.findall(rf"^round {round_},", job.log(), re.MULTILINE)) == lines

    await asyncio.to_thread(job.wait, f"the lists of round {round_}", all_have)
