"""ShardService: leases answered at once, declarations and reports when their effect is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from elasticjob_api.v1 import shards_pb2 as pb
from elasticjob_api.v1.shards_pb2_grpc import ShardServiceServicer

from elasticjob_master import translate
from elasticjob_master.controller import Controller
from elasticjob_master.core.shards import BadRequest, Dataset, Differs, Unknown
from elasticjob_master.store import Keeper, NotStored


class _NoMember(Exception):
    """Who leases is not known, or not known yet: a master that has just restarted may have to be told first."""


class ShardService(ShardServiceServicer):
    """Dynamic data sharding."""

    def __init__(self, controller: Controller, keeper: Keeper) -> None:
        self._controller = controller
        self._keeper = keeper
        self._declared_at: dict[str, int] = {}

    async def CreateDataset(self, request: pb.CreateDatasetRequest, context: Any) -> pb.CreateDatasetResponse:  # noqa: D102
        async with _errors(context):
            dataset = Dataset(
                name=request.dataset,
                size=request.size,
                shard_size=request.shard_size,
                epochs=request.epochs,
                shuffle=request.shuffle,
                seed=request.seed,
            )
            ledgers = self._controller.ledgers
            known = len(ledgers)
            ledger = ledgers.declare(dataset)
            if len(ledgers) > known:
                self._controller.changed()
                self._declared_at[dataset.name] = self._keeper.changes
            # Whoever has been told that it exists is not told by the next master that it does not.
            await self._keeper.stored(self._declared_at.get(dataset.name, 0))
            return pb.CreateDatasetResponse(shards=ledger.dataset.total)

    async def LeaseShards(self, request: pb.LeaseShardsRequest, context: Any) -> pb.LeaseShardsResponse:  # noqa: D102
        async with _errors(context):
            ledger = self._controller.ledgers.get(request.dataset)
            self._check_member(request.pod_uid)
            leased = ledger.lease(request.pod_uid, request.count, request.request_id)
            if leased:
                self._controller.changed()
            shards = [pb.Shard(id=shard.id, epoch=shard.epoch, start=shard.start, end=shard.end) for shard in leased]
            return pb.LeaseShardsResponse(shards=shards, finished=ledger.finished)

    async def ReportShards(self, request: pb.ReportShardsRequest, context: Any) -> pb.ReportShardsResponse:  # noqa: D102
        async with _errors(context):
            ledger = self._controller.ledgers.get(request.dataset)
            stale = ledger.report(request.pod_uid, request.done, request.returned)
            self._controller.changed()
            await self._keeper.stored(self._keeper.changes)
            return pb.ReportShardsResponse(stale=stale)

    async def GetLedger(self, request: pb.GetLedgerRequest, context: Any) -> pb.Ledger:  # noqa: D102
        async with _errors(context):
            return translate.ledger(self._controller.ledgers.get(request.dataset))

    def _check_member(self, uid: str) -> None:
        """A lease must have a holder whose loss is noticed."""
        if self._controller.members.get(uid) is None:
            raise _NoMember(f"pod UID {uid[:128]!r} is no member of this job; call Register first")


@asynccontextmanager
async def _errors(context: Any) -> AsyncIterator[None]:
    try:
        yield
    except BadRequest as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
    except Unknown as error:
        await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
    except Differs as error:
        await context.abort(grpc.StatusCode.ALREADY_EXISTS, str(error))
    except (NotStored, _NoMember) as error:
        await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
