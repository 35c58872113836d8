"""ShardService: the data sets, whose shards are leased to the members.

The service answers a change only after the state has been stored. The exception is a lease while
the state cannot be stored: the service answers it at once, so that the training continues. The
members report their leases to the next master, which leases nothing before all of them have done
so.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

from elasticjob_api.limits import MAX_SHARD_MESSAGE_CHARACTERS
from elasticjob_api.refusals import BadRequest, NotReadyYet
from elasticjob_api.v1 import shards_pb2 as pb
from elasticjob_api.v1.shards_pb2_grpc import ShardServiceServicer
from elasticjob_shards import Dataset
from elasticjob_shards.dataset import digest_of

from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous.current_process import check_current, runs
from elasticjob_master.persistence.state_writer import NotStored, StateWriter
from elasticjob_master.server import protobuf

log = logging.getLogger(__name__)

_LONGEST_NAME = 4096


class ShardService(ShardServiceServicer):
    """Serves the data sets."""

    def __init__(self, controller: Controller, state_writer: StateWriter) -> None:
        self._controller = controller
        self._ledgers = controller.ledgers
        self._state_writer = state_writer
        self._declared_at: dict[str, int] = {}

    async def CreateDataset(
        self, request: pb.CreateDatasetRequest, context: Any
    ) -> pb.CreateDatasetResponse:
        dataset = _dataset(request)
        self._check_if_named(request.pod_uid, request.round)
        known = [ledger.dataset for ledger in self._ledgers]
        ledger = self._ledgers.declare(dataset)
        if ledger.dataset not in known:
            self._controller.changed()
            self._declared_at[dataset.name] = self._state_writer.changes
        # A data set that was confirmed must be known to the next master, too.
        declared_at = self._declared_at.get(dataset.name, 0)
        await self._state_writer.wait_until_stored(declared_at, urgent=True)
        return pb.CreateDatasetResponse(shards=ledger.dataset.total)

    async def LeaseShards(
        self, request: pb.LeaseShardsRequest, context: Any
    ) -> pb.LeaseShardsResponse:
        ledger = self._ledgers.get(request.dataset)
        check_current(self._controller.rendezvous, request.pod_uid, request.round)
        self._check_leases_known(self._controller.members.awaited)
        most = self._ledgers.lease_limit(len(self._controller.members))
        leased = ledger.lease(request.pod_uid, request.count, request.request_id, most=most)
        if leased:
            self._controller.changed()
            await self._store_if_possible()
        shards = [pb.Shard(**shard._asdict()) for shard in leased]
        return pb.LeaseShardsResponse(shards=shards, finished=ledger.finished, most=most)

    async def ReportShards(
        self, request: pb.ReportShardsRequest, context: Any
    ) -> pb.ReportShardsResponse:
        ledger = self._ledgers.get(request.dataset)
        if request.returned:
            self._check_leases_known(self._controller.members.awaited & {request.pod_uid})
        returned: Sequence[int] = request.returned
        if not runs(self._controller.members.get(request.pod_uid), request.round):
            # The leases ended with the process. The pod's next process may have leased the same
            # shards.
            returned = ()
        try:
            stale = ledger.report(
                request.pod_uid, request.done, returned, request.failed, round_=request.round
            )
        except BadRequest as error:
            # A later master may have leased these shards while this one cannot store anything.
            if self._state_writer.failing_seconds():
                raise NotReadyYet(str(error)) from error
            raise
        if request.failed:
            self._record_failed(request)
        self._controller.changed()
        # While the world changes, its processes wait for their last reports.
        urgent = self._controller.rendezvous.phase != "training"
        await self._state_writer.wait_until_stored(self._state_writer.changes, urgent=urgent)
        return pb.ReportShardsResponse(stale=stale)

    async def ExtendDataset(
        self, request: pb.ExtendDatasetRequest, context: Any
    ) -> pb.ExtendDatasetResponse:
        ledger = self._ledgers.get(request.dataset)
        self._check_if_named(request.pod_uid, request.round)
        ledger.extend(request.size, final=request.final)
        self._controller.changed()
        await self._state_writer.wait_until_stored(self._state_writer.changes)
        return pb.ExtendDatasetResponse(size=ledger.dataset.size)

    async def GetCheckpoint(self, request: pb.GetCheckpointRequest, context: Any) -> pb.Checkpoint:
        ledger = self._ledgers.get(request.dataset)
        self._check_if_named(request.pod_uid, request.round)
        return pb.Checkpoint(state=ledger.checkpoint())

    async def RestoreCheckpoint(
        self, request: pb.RestoreCheckpointRequest, context: Any
    ) -> pb.RestoreCheckpointResponse:
        ledger = self._ledgers.get(request.dataset)
        if not request.round:
            raise BadRequest("round is 0; it must be the round of the process that restores")
        member = check_current(self._controller.rendezvous, request.pod_uid, request.round)
        if self._controller.rendezvous.is_notified(member) and not request.first_round:
            raise BadRequest(
                f"role {member.identity.role} has onWorldChange: Notify; its processes "
                "continue with what they have trained, so data set "
                f"{request.dataset} cannot go back to a checkpoint: use Restart for that"
            )
        alone = self._controller.rendezvous.world == (request.pod_uid,)
        only = alone and member.identity.slots == 1
        latest = self._controller.rendezvous.round
        if request.world_round > latest:
            raise NotReadyYet(f"world_round is {request.world_round}; the present one is {latest}")
        first_round = request.first_round or request.round
        # A process that does not continue from world to world was started for its own.
        world = request.world_round if request.first_round else 0
        ledger.restore(request.state, world or first_round, first_round=first_round, only=only)
        self._controller.changed()
        await self._state_writer.wait_until_stored(self._state_writer.changes, urgent=True)
        account = ledger.account()
        return pb.RestoreCheckpointResponse(waiting=account.total - account.done - account.failed)

    async def GetLedger(self, request: pb.GetLedgerRequest, context: Any) -> pb.Ledger:
        return protobuf.ledger(self._ledgers.get(request.dataset))

    def _check_if_named(self, uid: str, round_: int) -> None:
        """Refuse a process that is not in the present world.

        Agents of an earlier version name neither pod nor round.
        """
        if uid or round_:
            check_current(self._controller.rendezvous, uid, round_)

    def _check_leases_known(self, awaited: Collection[str]) -> None:
        """Refuse the call until these members have reported their leases.

        The earlier master may not have been able to store them.
        """
        if not awaited:
            return
        members = map(self._controller.members.get, awaited)
        pods = sorted(member.identity.pod_name for member in members if member is not None)
        more = ""
        if len(pods) > 3:
            more = f" and {len(pods) - 3} more"
        raise NotReadyYet(
            f"the leases of {', '.join(pods[:3])}{more} are not known yet: not connected"
        )

    async def _store_if_possible(self) -> None:
        if not self._state_writer.failing_seconds():
            with suppress(NotStored):
                await self._state_writer.wait_until_stored(self._state_writer.changes)

    def _record_failed(self, request: pb.ReportShardsRequest) -> None:
        reason = request.message[:MAX_SHARD_MESSAGE_CHARACTERS] or "no reason was given"
        first = ", ".join(map(str, request.failed[:5]))
        message = (
            f"data set {request.dataset}: {len(request.failed)} shards failed ({first}): {reason}"
        )
        log.warning("%s", message)
        self._controller.record_event("ShardsFailed", message)


def _dataset(request: pb.CreateDatasetRequest) -> Dataset:
    for part in request.parts:
        if len(part.name) > _LONGEST_NAME:
            size = len(part.name)
            raise BadRequest(
                f"the name of a part has {size} characters; it must have at most {_LONGEST_NAME}"
            )
    sizes = tuple(part.size for part in request.parts)
    return Dataset(
        name=request.dataset,
        size=sum(sizes) if sizes else request.size,
        shard_size=request.shard_size,
        epochs=request.epochs,
        shuffle=request.shuffle,
        seed=request.seed,
        parts=sizes,
        parts_digest=digest_of((part.name, part.size) for part in request.parts),
        streamed=request.streamed,
    )
