"""HorovodService: Horovod's elastic driver, for jobs without a launcher."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from elasticjob_api.frameworks import horovod
from elasticjob_api.refusals import NotCurrent, NotReadyYet
from elasticjob_api.v1 import horovod_pb2 as pb
from elasticjob_api.v1.horovod_pb2_grpc import HorovodServiceServicer

from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous import elastic_driver
from elasticjob_master.core.rendezvous.current_process import check_process
from elasticjob_master.core.rendezvous.member_events import PlaceRequested
from elasticjob_master.core.sync.gloo_values import GlooValues
from elasticjob_master.server.services.waiters import Waiters, checked_wait

MOST_WAITING = 40_000
"""Two requests of each member of the largest job."""
_NEXT_WORLD = None
"""The key of calls that wait for a world. Calls that wait for a value have its key, a string."""


class HorovodService(HorovodServiceServicer):
    """Gives processes their places in worlds, and the values with which they connect."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._values = GlooValues()
        self._slots: tuple[int, dict[str, list[pb.Slot]]] = (0, {})
        """A round, and the places of its processes by the UID of their pod, in the order of the
        local ranks.
        """
        self._waiters = Waiters(MOST_WAITING)
        controller.subscribe("decided", self._decided)

    async def Join(self, request: pb.JoinRequest, context: Any) -> pb.JoinResponse:
        async with asyncio.timeout(checked_wait(request.wait_seconds)):
            self._check_driver()
            job = self._controller.rendezvous
            member = check_process(job, request.pod_uid, request.process_round)
            self._controller.handle(PlaceRequested(member.uid, request.left_round))
            while not self._has_place(request):
                if self._leaves(request.pod_uid):
                    return pb.JoinResponse(removed=True)
                await self._waiters.wait(_NEXT_WORLD)
            return pb.JoinResponse(round=job.round, slots=self._slots_of(request.pod_uid))

    async def Put(self, request: pb.PutRequest, context: Any) -> pb.PutResponse:
        self._check_round(request.round)
        self._values.put(request.round, request.key, request.value)
        self._waiters.wake(request.key)
        return pb.PutResponse()

    async def Get(self, request: pb.GetRequest, context: Any) -> pb.GetResponse:
        async with asyncio.timeout(checked_wait(request.wait_seconds)):
            self._check_round(request.round)
            while (value := self._values.get(request.round, request.key)) is None:
                await self._waiters.wait(request.key)
            return pb.GetResponse(value=value)

    async def Delete(self, request: pb.DeleteRequest, context: Any) -> pb.DeleteResponse:
        self._check_round(request.round)
        self._values.delete(request.round, request.key)
        return pb.DeleteResponse()

    def _has_place(self, request: pb.JoinRequest) -> bool:
        """Return whether the process has a place in the present world."""
        state = self._controller.rendezvous
        member = check_process(state, request.pod_uid, request.process_round)
        return elastic_driver.may_join(state, member, request.left_round)

    def _check_driver(self) -> None:
        job = self._controller.rendezvous
        if job.sizes is None:
            raise NotReadyYet("the job's roles are not known yet")
        if not job.rules.elastic_driver:
            raise NotCurrent(
                "this master does not run Horovod's elastic driver: "
                "it does so for framework horovod without a role launcher"
            )

    def _check_round(self, round_: int) -> None:
        present = self._controller.rendezvous.round
        if not 0 < round_ <= present:
            raise NotReadyYet(f"round is {round_}; this master knows of {present} so far")

    def _leaves(self, uid: str) -> bool:
        """Return whether the member belongs to no later world."""
        member = self._controller.members.get(uid)
        return member is None or (member.leaving and not self._controller.rendezvous.in_world(uid))

    def _slots_of(self, uid: str) -> list[pb.Slot]:
        job = self._controller.rendezvous
        if self._slots[0] != job.round:
            peers = [member.identity.peer for member in job.world_members()]
            world = self._controller.framework.processes(peers)
            by_uid: dict[str, list[pb.Slot]] = {}
            uids = {member.identity.pod_name: member.uid for member in job.world_members()}
            for peer, slot in zip(world, horovod.slots(world), strict=True):
                by_uid.setdefault(uids[peer.name], []).append(pb.Slot(**asdict(slot)))
            self._slots = (job.round, by_uid)
        return self._slots[1].get(uid, [])

    def _decided(self) -> None:
        job = self._controller.rendezvous
        if job.rules.elastic_driver and 0 < job.begun_round == job.round:
            self._slots_of("")  # computed now, while all members of the world exist
        self._waiters.wake(_NEXT_WORLD)
