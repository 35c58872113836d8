"""Passes calls about data sets on to the master, and returns the shards of closed connections.

The master takes back all shards of a training process when it learns that the process has exited.
It does not learn of the end of a process that the training process has forked, such as a data
loader. The agent returns the unreported shards of such a process when its connection ends.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc.aio
from elasticjob_api.v1 import agent_pb2
from elasticjob_api.v1 import shards_pb2 as pb
from elasticjob_api.v1.shards_pb2_grpc import ShardServiceStub

from elasticjob_agent.proxy.master_call import CallError, call_until_answered

Request = dict[str, Any]


@dataclass(eq=False)
class Caller:
    """A connection of a process, which was started in a round and has joined worlds since."""

    round: int
    world: agent_pb2.World
    """The latest one that it has joined."""
    local_rank: int = 0
    local_size: int = 1

    @property
    def world_round(self) -> int:
        """The round of its values and barriers."""
        return self.world.round


Handler = Callable[[Request, Caller], Awaitable[Request]]
"""Answers a call; it raises KeyError, TypeError or ValueError for a bad request."""


class ShardProxy:
    """Handles the calls about data sets."""

    def __init__(self, channel: grpc.aio.Channel, pod_uid: str) -> None:
        """Call over a channel to the master, in the name of a pod."""
        self._stub = ShardServiceStub(channel)
        self._pod_uid = pod_uid
        self._lease_lock = asyncio.Lock()
        self._leased: dict[Caller, dict[str, set[int]]] = {}
        self._reports: dict[asyncio.Task[Any], pb.ReportShardsRequest] = {}
        """The reports that no master has confirmed yet."""
        self.handlers: dict[str, Handler] = {
            "create_dataset": self._create,
            "lease_shards": self._lease,
            "report_shards": self._report,
            "extend_dataset": self._extend,
            "get_checkpoint": self._get_checkpoint,
            "restore_checkpoint": self._restore_checkpoint,
        }
        """The handlers by the name of the call."""

    async def disconnected(self, caller: Caller) -> None:
        """Return the shards that an ended connection had leased."""
        for dataset, shards in self._leased.pop(caller, {}).items():
            for report in self._reports.values():
                if report.dataset == dataset:
                    shards.difference_update(report.done, report.returned, report.failed)
            if shards:
                await self._give_back(dataset, sorted(shards), caller)

    def leased(self) -> list[agent_pb2.LeasedShards]:
        """Return the leased shards, and those whose report no master has confirmed."""
        leased: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
        ended: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
        for caller, datasets in self._leased.items():
            for dataset, shards in datasets.items():
                leased[dataset, caller.round] |= shards
        for report in self._reports.values():
            # A master that has stored the return may have leased them to another member.
            leased[report.dataset, report.round].difference_update(report.returned)
            ended[report.dataset, report.round].update(report.done, report.failed, report.returned)
        for key, shards in leased.items():
            ended[key] -= shards
        return [*_messages(leased, ended=False), *_messages(ended, ended=True)]

    async def _create(self, request: Request, caller: Caller) -> Request:
        message = pb.CreateDatasetRequest(
            dataset=str(request["dataset"]),
            size=int(request.get("size", 0)),
            shard_size=int(request["shard_size"]),
            epochs=int(request.get("epochs", 1)),
            shuffle=bool(request.get("shuffle", False)),
            seed=int(request.get("seed", 0)),
            parts=[
                pb.Part(name=str(name), size=int(size)) for name, size in request.get("parts", ())
            ],
            streamed=bool(request.get("streamed", False)),
            pod_uid=self._pod_uid,
            round=caller.round,
        )
        return {"shards": (await call_until_answered(self._stub.CreateDataset, message)).shards}

    async def _lease(self, request: Request, caller: Caller) -> Request:
        dataset = str(request["dataset"])
        message = pb.LeaseShardsRequest(
            dataset=dataset,
            pod_uid=self._pod_uid,
            count=int(request["count"]),
            request_id=uuid.uuid4().hex,
            round=caller.round,
        )
        self._leased.setdefault(caller, {})
        async with self._lease_lock:  # the master recognizes only the latest request's repetition
            answer = await call_until_answered(self._stub.LeaseShards, message)
        leased = self._leased.get(caller)
        if leased is None:  # the connection has ended
            await self._give_back(dataset, [shard.id for shard in answer.shards], caller)
        elif answer.shards:
            leased.setdefault(dataset, set()).update(shard.id for shard in answer.shards)
        shards = [
            {
                "id": shard.id,
                "epoch": shard.epoch,
                "start": shard.start,
                "end": shard.end,
                "part": shard.part,
            }
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
        answer = await self._send_report(message)
        ended = {*message.done, *message.returned, *message.failed}
        for leased in self._leased.values():
            leased.get(dataset, set()).difference_update(ended)
        return {"stale": list(answer.stale)}

    async def _extend(self, request: Request, caller: Caller) -> Request:
        message = pb.ExtendDatasetRequest(
            dataset=str(request["dataset"]),
            size=int(request["size"]),
            final=bool(request.get("final", False)),
            pod_uid=self._pod_uid,
            round=caller.round,
        )
        return {"size": (await call_until_answered(self._stub.ExtendDataset, message)).size}

    async def _get_checkpoint(self, request: Request, caller: Caller) -> Request:
        message = pb.GetCheckpointRequest(
            dataset=str(request["dataset"]), pod_uid=self._pod_uid, round=caller.round
        )
        answer = await call_until_answered(self._stub.GetCheckpoint, message)
        return {"state": base64.b64encode(answer.state).decode()}

    async def _restore_checkpoint(self, request: Request, caller: Caller) -> Request:
        message = pb.RestoreCheckpointRequest(
            dataset=str(request["dataset"]),
            state=base64.b64decode(str(request["state"]), validate=True),
            round=caller.round,
            pod_uid=self._pod_uid,
            first_round=int(request.get("first_round", 0)),
            world_round=caller.world_round,
        )
        if self._reports:  # of earlier processes, whose samples are not in the checkpoint
            await asyncio.wait(tuple(self._reports))
        answer = await call_until_answered(self._stub.RestoreCheckpoint, message)
        self._leased.get(caller, {}).pop(message.dataset, None)  # its leases have ended
        return {"waiting": answer.waiting}

    async def _give_back(self, dataset: str, shards: Iterable[int], caller: Caller) -> None:
        message = pb.ReportShardsRequest(
            dataset=dataset, pod_uid=self._pod_uid, returned=shards, round=caller.round
        )
        if message.returned:
            with contextlib.suppress(CallError):  # the master has returned them already
                await self._send_report(message)

    async def _send_report(self, message: pb.ReportShardsRequest) -> pb.ReportShardsResponse:
        report: asyncio.Task[pb.ReportShardsResponse] = asyncio.create_task(
            call_until_answered(self._stub.ReportShards, message)
        )
        self._reports[report] = message
        report.add_done_callback(self._reports.pop)
        return await report


def _messages(
    leased: Mapping[tuple[str, int], set[int]], *, ended: bool
) -> Iterator[agent_pb2.LeasedShards]:
    for (dataset, round_), shards in leased.items():
        if shards:
            yield agent_pb2.LeasedShards(
                dataset=dataset, round=round_, shards=sorted(shards), ended=ended
            )
