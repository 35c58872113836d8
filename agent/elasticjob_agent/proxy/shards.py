"""The training process' dealings with its data sets, and what of them must go back when a process is gone.

The master hears of the end of the training process itself and takes back all it had. Processes that it has forked, such
as data loaders, end unheard: what such a process has leased, and nobody of this pod has reported, goes back when its
connection ends.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Protocol

import grpc.aio
from elasticjob_api.v1 import shards_pb2 as pb
from elasticjob_api.v1.shards_pb2_grpc import ShardServiceStub

Request = dict[str, Any]
Persist = Callable[[Any, Any], Coroutine[Any, Any, Any]]


class Caller(Protocol):
    """One connection of a training process; hashed by identity."""

    @property
    def round(self) -> int:
        """Return the round of the process."""


class ShardCalls:
    """The calls about data sets."""

    def __init__(self, channel: grpc.aio.Channel, pod_uid: str, persist: Persist, refused: type[Exception]) -> None:
        """Call over a channel in the name of a pod, by `persist`, which raises `refused` when the master refuses."""
        self._stub = ShardServiceStub(channel)
        self._pod_uid = pod_uid
        self._persist = persist
        self._refused = refused
        self._leasing = asyncio.Lock()
        self._held: dict[Caller, dict[str, set[int]]] = {}
        self._reports: set[asyncio.Task[Any]] = set()
        self.calls: dict[str, Callable[[Request, Caller], Awaitable[Request]]] = {
            "create_dataset": self._create,
            "lease_shards": self._lease,
            "report_shards": self._report,
            "extend_dataset": self._extend,
            "get_checkpoint": self._get_checkpoint,
            "restore_checkpoint": self._restore_checkpoint,
        }
        """By name. They raise KeyError, TypeError or ValueError for a bad request."""

    async def left(self, caller: Caller) -> None:
        """Give back what a connection that has ended had leased."""
        for dataset, shards in self._held.pop(caller, {}).items():
            if shards:
                await self._give_back(dataset, sorted(shards), caller)

    async def _create(self, request: Request, _caller: Caller) -> Request:
        message = pb.CreateDatasetRequest(
            dataset=str(request["dataset"]),
            size=int(request.get("size", 0)),
            shard_size=int(request["shard_size"]),
            epochs=int(request.get("epochs", 1)),
            shuffle=bool(request.get("shuffle", False)),
            seed=int(request.get("seed", 0)),
            parts=[pb.Part(name=str(name), size=int(size)) for name, size in request.get("parts", ())],
            streamed=bool(request.get("streamed", False)),
        )
        return {"shards": (await self._persist(self._stub.CreateDataset, message)).shards}

    async def _lease(self, request: Request, caller: Caller) -> Request:
        dataset = str(request["dataset"])
        message = pb.LeaseShardsRequest(
            dataset=dataset,
            pod_uid=self._pod_uid,
            count=int(request["count"]),
            request_id=uuid.uuid4().hex,
            round=caller.round,
        )
        self._held.setdefault(caller, {})
        async with self._leasing:  # the master knows a repetition of the latest request only
            answer = await self._persist(self._stub.LeaseShards, message)
        held = self._held.get(caller)
        if held is None:  # it is gone, and nobody would train them
            await self._give_back(dataset, [shard.id for shard in answer.shards], caller)
        elif answer.shards:
            held.setdefault(dataset, set()).update(shard.id for shard in answer.shards)
        shards = [
            {"id": shard.id, "epoch": shard.epoch, "start": shard.start, "end": shard.end, "part": shard.part}
            for shard in answer.shards
        ]
        return {"shards": shards, "finished": answer.finished, "most": answer.most}

    async def _report(self, request: Request, caller: Caller) -> Request:
        dataset = str(request["dataset"])
        message = pb.ReportShardsRequest(
            dataset=dataset,
            pod_uid=self._pod_uid,
            done=request.get("done", ()),
            returned=request.get("returned", ()),
            failed=request.get("failed", ()),
            message=str(request.get("message", "")),
            round=caller.round,
        )
        report = asyncio.create_task(self._persist(self._stub.ReportShards, message))
        self._reports.add(report)
        report.add_done_callback(self._reports.discard)
        answer = await report
        ended = {*message.done, *message.returned, *message.failed}
        for held in self._held.values():
            held.get(dataset, set()).difference_update(ended)
        return {"stale": list(answer.stale)}

    async def _extend(self, request: Request, _caller: Caller) -> Request:
        message = pb.ExtendDatasetRequest(
            dataset=str(request["dataset"]), size=int(request["size"]), final=bool(request.get("final", False))
        )
        return {"size": (await self._persist(self._stub.ExtendDataset, message)).size}

    async def _get_checkpoint(self, request: Request, _caller: Caller) -> Request:
        message = pb.GetCheckpointRequest(dataset=str(request["dataset"]))
        answer = await self._persist(self._stub.GetCheckpoint, message)
        return {"state": base64.b64encode(answer.state).decode()}

    async def _restore_checkpoint(self, request: Request, caller: Caller) -> Request:
        message = pb.RestoreCheckpointRequest(
            dataset=str(request["dataset"]),
            state=base64.b64decode(str(request["state"]), validate=True),
            round=caller.round,
            pod_uid=self._pod_uid,
        )
        if self._reports:  # of processes that ran here before: what they have trained is not in the checkpoint
            await asyncio.wait(tuple(self._reports))
        return {"waiting": (await self._persist(self._stub.RestoreCheckpoint, message)).waiting}

    async def _give_back(self, dataset: str, shards: Iterable[int], caller: Caller) -> None:
        message = pb.ReportShardsRequest(dataset=dataset, pod_uid=self._pod_uid, returned=shards, round=caller.round)
        if message.returned:
            with contextlib.suppress(self._refused):  # the master knows them no more
                await self._persist(self._stub.ReportShards, message)
