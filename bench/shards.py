"""Figure about data shards.

Measures how many shards a second are leased and reported, through gRPC and accounted for one by
one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from elasticjob_api.v1 import shards_pb2 as pb

from bench import servers
from bench.agents import Agent
from bench.figure import Result, in_turn
from bench.servers import Server

_WORKERS = 64
_BATCH = 128
_SECONDS = 4.0
_RUNS = 3
_SERVICE = "/elasticjob.v1.ShardService/"
_DATASET = pb.CreateDatasetRequest(
    dataset="bench", size=2**40, shard_size=256, epochs=1, shuffle=True, seed=1
)


async def shards_per_s() -> Result:
    """Compare 64 workers, each with a connection, with the same workers of a bare server.

    Each leases 128 shards at a time, and reports as many.
    The master stores the ledger in a file before it answers a report; the shards are leased in a
    shuffled order.
    """
    limits, ours = await in_turn(
        _RUNS,
        lambda: _rate(servers.bare),
        lambda: _rate(lambda: servers.master(workers=_WORKERS)),
    )
    return Result(ours, limits, "shards/s")


async def _rate(start: Callable[[], AbstractAsyncContextManager[Server]]) -> float:
    """Return the shards reported a second."""
    async with start() as server, _workers(server) as workers:
        await workers[0].connection.ask(_SERVICE + "CreateDataset", _DATASET.SerializeToString())
        began = time.perf_counter()
        counts = await asyncio.gather(*(_train(worker, began + _SECONDS) for worker in workers))
        return sum(counts) / (time.perf_counter() - began)


async def _train(worker: Agent, until: float) -> int:
    """Lease the next shards while reporting the last ones, as the training library does."""
    count = 0
    done = await _lease(worker, 0)
    while time.perf_counter() < until:
        _, leased = await asyncio.gather(_report(worker, done), _lease(worker, count))
        count += len(done)
        done = leased
    return count


async def _lease(worker: Agent, number: int) -> list[int]:
    request = pb.LeaseShardsRequest(
        dataset=_DATASET.dataset,
        pod_uid=worker.uid,
        count=_BATCH,
        request_id=f"{number:032x}",
        round=0,
    )
    answer = await worker.connection.ask(_SERVICE + "LeaseShards", request.SerializeToString())
    return [shard.id for shard in pb.LeaseShardsResponse.FromString(answer).shards]


async def _report(worker: Agent, done: list[int]) -> None:
    request = pb.ReportShardsRequest(dataset=_DATASET.dataset, pod_uid=worker.uid, done=done)
    answer = await worker.connection.ask(_SERVICE + "ReportShards", request.SerializeToString())
    if pb.ReportShardsResponse.FromString(answer).stale:
        raise RuntimeError("a shard was taken from its worker")


@asynccontextmanager
async def _workers(server: Server) -> AsyncIterator[list[Agent]]:
    agents = [Agent(index, await server.connect()) for index in range(_WORKERS)]
    for agent in agents:
        await agent.register()
    yield agents
    for agent in agents:
        agent.connection.close()
