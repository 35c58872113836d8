"""What the training process asks the master for: shards and host lists, fetched on its behalf.

The agent stands between the two so that nothing is lost when either is away: a call waits for a master that is coming
back, and a report of finished shards outlives the process that made it. What a process had leased and not reported
goes back by itself: the master hears of the process' end.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import grpc.aio
from elasticjob_api.v1 import discovery_pb2 as discovery
from elasticjob_api.v1 import shards_pb2 as pb
from elasticjob_api.v1.discovery_pb2_grpc import DiscoveryServiceStub
from elasticjob_api.v1.shards_pb2_grpc import ShardServiceStub

RETRIED = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})
CALL_SECONDS = 10.0
RETRY_SECONDS = 0.5


class BadCall(Exception):
    """A call of the training process that cannot be answered; the message is for its user."""


class Calls:
    """The calls of the training process."""

    def __init__(self, channel: grpc.aio.Channel, pod_uid: str) -> None:
        """Call over a channel, in the name of a pod."""
        self._stub = ShardServiceStub(channel)
        self._discovery = DiscoveryServiceStub(channel)
        self._pod_uid = pod_uid
        self._leasing = asyncio.Lock()

    async def call(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request.

        Raises:
            BadCall: the request is not understood, or the master refuses it.
        """
        try:
            match request.get("call"):
                case "create_dataset":
                    return await self._create(request)
                case "lease_shards":
                    return await self._lease(str(request["dataset"]), int(request["count"]))
                case "report_shards":
                    done, returned = request.get("done", ()), request.get("returned", ())
                    return await self._report(str(request["dataset"]), done=done, returned=returned)
                case "hosts":
                    hosts = (await _persist(self._discovery.GetHosts, discovery.GetHostsRequest())).hosts
                    return {"hosts": [{"name": h.name, "slots": h.slots, "address": h.address} for h in hosts]}
                case other:
                    raise BadCall(f"unknown call {other!r}")
        except KeyError as error:
            raise BadCall(f"field {error} is missing") from error
        except (TypeError, ValueError) as error:
            raise BadCall(f"bad field: {error}") from error

    async def _create(self, request: dict[str, Any]) -> dict[str, Any]:
        message = pb.CreateDatasetRequest(
            dataset=str(request["dataset"]),
            size=int(request["size"]),
            shard_size=int(request["shard_size"]),
            epochs=int(request.get("epochs", 1)),
            shuffle=bool(request.get("shuffle", False)),
            seed=int(request.get("seed", 0)),
        )
        answer = await _persist(self._stub.CreateDataset, message)
        return {"shards": answer.shards}

    async def _lease(self, dataset: str, count: int) -> dict[str, Any]:
        message = pb.LeaseShardsRequest(
            dataset=dataset, pod_uid=self._pod_uid, count=count, request_id=uuid.uuid4().hex
        )
        async with self._leasing:  # the master knows a repetition of the latest request only
            answer = await _persist(self._stub.LeaseShards, message)
        shards = [{"id": s.id, "epoch": s.epoch, "start": s.start, "end": s.end} for s in answer.shards]
        return {"shards": shards, "finished": answer.finished}

    async def _report(self, dataset: str, *, done: Any = (), returned: Any = ()) -> dict[str, Any]:
        message = pb.ReportShardsRequest(dataset=dataset, pod_uid=self._pod_uid, done=done, returned=returned)
        answer = await _persist(self._stub.ReportShards, message)
        return {"stale": list(answer.stale)}


async def _persist(method: Any, message: Any) -> Any:
    """Call until the master answers; a refusal is an answer."""
    while True:
        try:
            return await method(message, timeout=CALL_SECONDS, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() not in RETRIED:
                raise BadCall(f"{error.code().name}: {error.details()}") from error
        await asyncio.sleep(RETRY_SECONDS)
