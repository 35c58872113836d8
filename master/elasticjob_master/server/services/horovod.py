"""HorovodService: Horovod's elastic driver, for jobs without a launcher."""

from __future__ import annotations

import asyncio
from typing import Any

from elasticjob_api.frameworks import horovod
from elasticjob_api.refusals import BadRequest, LimitReached, NotCurrent, NotReadyYet
from elasticjob_api.v1 import horovod_pb2 as pb
from elasticjob_api.v1.horovod_pb2_grpc import HorovodServiceServicer

from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous import elastic_driver
from elasticjob_master.core.rendezvous.current_process import check_process
from elasticjob_master.core.rendezvous.events import PlaceRequested
from elasticjob_master.core.sync.gloo_values import GlooValues
from elasticjob_master.server import protobuf
from elasticjob_master.server.services import errors

MOST_WAITING = 40_000
"""Requests that wait at a time: two of each member that there can be."""
LONGEST_WAIT_SECONDS = 60.0


class HorovodService(HorovodServiceServicer):
    """Places in worlds, and the values with which their processes connect."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._values = GlooValues()
        self._slots: tuple[int, dict[str, list[pb.Slot]]] = (0, {})
        """Of a round's processes, by the UID of their pod and by local rank: made when the round
        begins.
        """
        self._joining: set[asyncio.Future[None]] = set()
        self._getting: dict[str, set[asyncio.Future[None]]] = {}
        self._waiting = 0
        controller.subscribe("decided", self._decided)

    async def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinResponse:
        async with (
            errors.abort_on_refusal(context),
            asyncio.timeout(_wait_seconds(request.wait_seconds)),
        ):
            self._check_driver()
            job = self._controller.rendezvous
            member = check_process(job, request.pod_uid, request.process_round)
            self._controller.handle(PlaceRequested(member.uid, request.left_round))
            while not self._has_place(request):
                if self._leaves(request.pod_uid):
                    return pb.JoinResponse(removed=True)
                await self._wait(self._joining)
            return pb.JoinResponse(round=job.round, slots=self._slots_of(request.pod_uid))

    async def Put(self, request: pb.PutRequest, context: Any) -> pb.PutResponse:
        async with errors.abort_on_refusal(context):
            self._check_round(request.round)
            self._values.put(request.round, request.key, request.value)
            for waiter in self._getting.pop(request.key, ()):
                _wake(waiter)
            return pb.PutResponse()

    async def Get(self, request: pb.GetRequest, context: Any) -> pb.GetResponse:
        async with (
            errors.abort_on_refusal(context),
            asyncio.timeout(_wait_seconds(request.wait_seconds)),
        ):
            self._check_round(request.round)
            while (value := self._values.get(request.round, request.key)) is None:
                waiters = self._getting.setdefault(request.key, set())
                try:
                    await self._wait(waiters)
                finally:
                    if not waiters and self._getting.get(request.key) is waiters:
                        del self._getting[request.key]
            return pb.GetResponse(value=value)

    async def Delete(self, request: pb.DeleteRequest, context: Any) -> pb.DeleteResponse:
        async with errors.abort_on_refusal(context):
            self._check_round(request.round)
            self._values.delete(request.round, request.key)
            return pb.DeleteResponse()

    def _has_place(self, request: pb.JoinRequest) -> bool:
        """Return whether a process that has asked has a place in the present world."""
        state = self._controller.rendezvous
        member = check_process(state, request.pod_uid, request.process_round)
        return elastic_driver.may_join(state, member, request.left_round)

    def _check_driver(self) -> None:
        job = self._controller.rendezvous
        if job.sizes is None:
            raise NotReadyYet("the job's roles are not known yet")
        if not job.rules.elastic_driver:
            raise NotCurrent(
                "this job has no elastic driver here: that is for framework horovod without a launcher"
            )

    def _check_round(self, round_: int) -> None:
        present = self._controller.rendezvous.round
        if not 0 < round_ <= present:
            raise NotReadyYet(f"round is {round_}; this master knows of {present} so far")

    def _leaves(self, uid: str) -> bool:
        """Return whether a member that asks belongs to no later world."""
        member = self._controller.members.get(uid)
        return member is None or (member.leaving and not self._controller.rendezvous.in_world(uid))

    def _slots_of(self, uid: str) -> list[pb.Slot]:
        job = self._controller.rendezvous
        if self._slots[0] != job.round:
            peers = [protobuf.peer(member) for member in job.world_members()]
            world = self._controller.framework.processes(peers)
            found: dict[str, list[pb.Slot]] = {}
            uids = {member.identity.pod_name: member.uid for member in job.world_members()}
            for peer, slot in zip(world, horovod.slots(world), strict=True):
                found.setdefault(uids[peer.name], []).append(_slot(slot))
            self._slots = job.round, found
        return self._slots[1].get(uid, [])

    def _decided(self) -> None:
        job = self._controller.rendezvous
        if job.rules.elastic_driver and 0 < job.begun_round == job.round:
            self._slots_of("")  # now that all members of the world are there
        waiting = self._joining
        self._joining = set()
        for waiter in waiting:
            _wake(waiter)

    async def _wait(self, waiters: set[asyncio.Future[None]]) -> None:
        """Wait until something has happened there."""
        if self._waiting >= MOST_WAITING:
            raise LimitReached(f"{MOST_WAITING} requests are waiting already")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.add(waiter)
        self._waiting += 1
        try:
            await waiter
        finally:
            self._waiting -= 1
            waiters.discard(waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _slot(slot: horovod.Slot) -> pb.Slot:
    return pb.Slot(
        rank=slot.rank,
        size=slot.size,
        local_rank=slot.local_rank,
        local_size=slot.local_size,
        cross_rank=slot.cross_rank,
        cross_size=slot.cross_size,
    )


def _wait_seconds(seconds: float) -> float:
    """Return how long a request may wait."""
    if not 0 < seconds <= LONGEST_WAIT_SECONDS:
        raise BadRequest(
            f"wait_seconds is {seconds:g}; it must be more than 0, at most {LONGEST_WAIT_SECONDS:g}"
        )
    return seconds
