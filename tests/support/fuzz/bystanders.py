"""Runs two well-behaved agents in parallel to an attack.

Their streams stay, they are in every world, their ledger is exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import psutil
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_api.v1 import job_pb2, shards_pb2
from elasticjob_api.v1.job_pb2_grpc import JobServiceStub
from elasticjob_api.v1.shards_pb2_grpc import ShardServiceStub
from elasticjob_master.server.protobuf import MOST_INCARNATIONS
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.grpc_agent import SECONDS, Agent
from tests.support.master_process import Master, run_master
from tests.support.wait import until

OPTIONS = ("--standalone", "--framework=custom", "--min=1", "--workers=2")
MEGABYTE = 2**20
GROWTH = 16 * MEGABYTE
"""Bytes that the limits allow to keep; a few hundred bytes of each input would be more."""
LOG_PER_INPUT = 400
"""Bytes: a line each."""
DATASET = "the-bystanders-own"
NEWEST = MOST_INCARNATIONS
"""Incarnation of their pods: no other registration for their places is newer."""


@asynccontextmanager
async def master_with_bystanders(folder: Path, *options: str) -> AsyncIterator[Master]:
    """Run a master with two well-behaved agents.

    Check in the end that all three are unharmed.
    """
    async with (
        run_master(folder, *OPTIONS, *options, f"--state-file={folder / 'state'}") as master,
        master.channel() as channel,
        check_unharmed(master, channel),
        bystanders(channel),
    ):
        yield master


def rss(master: Master) -> int:
    return int(psutil.Process(master.process.pid).memory_info().rss)


@asynccontextmanager
async def check_unharmed(master: Master, channel: grpc.aio.Channel) -> AsyncIterator[None]:
    """Check after the block that the master's process is the same and has logged no error."""
    start = master.log.stat().st_size
    yield
    assert master.process.returncode is None, master.log.read_text()
    health = await health_pb2_grpc.HealthStub(channel).Check(
        health_pb2.HealthCheckRequest(), timeout=20
    )
    assert health.status == health_pb2.HealthCheckResponse.SERVING
    status = await JobServiceStub(channel).GetStatus(job_pb2.GetStatusRequest(), timeout=20)
    assert status.master_starts == 1
    with master.log.open("rb") as log:
        log.seek(start)
        logged = log.read()
    for text in (b"Traceback", b" ERROR ", b"never retrieved", b"never awaited"):
        assert text not in logged, logged[-8000:].decode(errors="replace")


@asynccontextmanager
async def bystanders(channel: grpc.aio.Channel) -> AsyncIterator[list[Agent]]:
    """Let two agents train and lease shards while in the block; then check their state."""
    agents = [await Agent(index, NEWEST).join(channel) for index in (0, 1)]
    await until("a world of two", lambda: all(agent.running for agent in agents))
    shards = ShardServiceStub(channel)
    first = agents[0]
    declared = shards_pb2.CreateDatasetRequest(dataset=DATASET, size=10**6, shard_size=1, epochs=1)
    await shards.CreateDataset(declared)
    done: set[int] = set()
    stopped = asyncio.Event()

    async def work() -> None:
        while not stopped.is_set():
            for agent in agents:
                await agent.heartbeat()
            lease = shards_pb2.LeaseShardsRequest(dataset=DATASET, pod_uid=first.uid, count=3)
            leased = [shard.id for shard in (await shards.LeaseShards(lease)).shards]
            report = shards_pb2.ReportShardsRequest(dataset=DATASET, pod_uid=first.uid, done=leased)
            # A change of the world returns a lease. The process that has finished it may still
            # report it.
            assert (await shards.ReportShards(report)).stale == []
            assert not done.intersection(leased), "a shard was leased twice although it was done"
            done.update(leased)
            await asyncio.sleep(0.05)

    working = asyncio.create_task(work())
    try:
        yield agents
        assert not working.done(), working.exception()
        stopped.set()  # not cancelled: grpc ends a stream if a write is cancelled
        await asyncio.wait_for(working, SECONDS)
    finally:
        working.cancel()
    for agent in agents:
        assert agent.task is not None
        if agent.task.done():
            raise AssertionError(f"{agent.name} has lost its stream: {await agent.stream.code()}")
        assert all(
            agent.uid in [m.pod_uid for m in start.world.members[:2]] for start in agent.started
        ), "oldest first"
    ledger = await shards.GetLedger(shards_pb2.GetLedgerRequest(dataset=DATASET))
    assert len(done) <= ledger.done <= len(done) + 3, "the account is not exact"
    await _wait_until_alone(channel, agents)


async def _wait_until_alone(channel: grpc.aio.Channel, agents: list[Agent]) -> None:
    """Wait for a world of these agents alone, without all others that had joined.

    Or for the end of the training: one of the others, in the same world, may have reported success.
    """
    world = pb.World()

    async def world_is_theirs() -> bool:
        nonlocal world
        for agent in agents:
            await agent.heartbeat()
        jobs = JobServiceStub(channel)
        world = await jobs.GetWorld(job_pb2.GetWorldRequest())
        status = await jobs.GetStatus(job_pb2.GetStatusRequest())
        alone = [m.pod_uid for m in world.members] == [a.uid for a in agents]
        finishing = status.phase == job_pb2.JOB_PHASE_FINISHING
        return (alone or finishing) and all(agent.running == world.round for agent in agents)

    await until("a world of these agents alone", world_is_theirs)
