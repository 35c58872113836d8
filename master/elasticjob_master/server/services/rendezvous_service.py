"""RendezvousService: the key-value store and the barriers of a world.

The service answers a change, and returns a value, only after the state has been stored. So a
restarted master knows everything that an earlier one has answered. A waiting call continues when
its key or barrier changes. It fails when its round ends, and at a barrier when a process that has
not arrived has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from elasticjob_api.refusals import BadRequest, NotCurrent, UnknownName
from elasticjob_api.v1 import rendezvous_pb2 as pb
from elasticjob_api.v1.rendezvous_pb2_grpc import RendezvousServiceServicer

from elasticjob_master.controller import Controller
from elasticjob_master.core.rendezvous.current_process import check_may_commit, check_round
from elasticjob_master.core.sync.key_value import check_keys
from elasticjob_master.persistence.state_writer import StateWriter
from elasticjob_master.server.services.waiters import Waiters

MOST_WAITING = 20_000
"""Two requests of each member of the largest job."""
LONGEST_WAIT_SECONDS = 3600.0


class RendezvousService(RendezvousServiceServicer):
    """Serves the values and the barriers of the present round."""

    def __init__(self, controller: Controller, state_writer: StateWriter) -> None:
        self._controller = controller
        self._state_writer = state_writer
        self._last_change = 0
        """The state writer's number of the latest change."""
        self._waiters = Waiters(MOST_WAITING)
        """By ("key", its name) or ("barrier", its name)."""
        controller.subscribe("new_round", self._waiters.wake_all)
        controller.subscribe("decided", self._give_up_barriers)

    async def SetValue(self, request: pb.SetValueRequest, context: Any) -> pb.SetValueResponse:
        self._check_round(request.round)
        expected = request.expected if request.HasField("expected") else None
        store = self._controller.keyvalue
        value = store.set(
            request.key, request.value, expected=expected, if_absent=request.if_absent
        )
        if value == request.value:
            self._changed("key", request.key)
        await self._stored()
        return pb.SetValueResponse(value=value or b"", present=value is not None)

    async def GetValues(self, request: pb.GetValuesRequest, context: Any) -> pb.GetValuesResponse:
        async with _within(request.wait_seconds):
            keys = list(request.keys)
            store = self._controller.keyvalue
            check_keys(keys)
            self._check_round(request.round)
            while (absent := store.first_missing(keys)) is not None:
                if request.wait_seconds == 0:
                    raise UnknownName(f"key {keys[absent]!r} has no value")
                # The search continues after the keys that it has found: a call may wait for many.
                while absent is not None:
                    await self._waiters.wait(("key", keys[absent]))
                    self._check_round(request.round)
                    absent = store.first_missing(keys, absent)
            values = store.get_all(keys)
            await self._stored()
            return pb.GetValuesResponse(values=values)

    async def AddValue(self, request: pb.AddValueRequest, context: Any) -> pb.AddValueResponse:
        self._check_round(request.round)
        value = self._controller.keyvalue.add(request.key, request.amount, request.request_id)
        self._changed("key", request.key)
        await self._stored()
        return pb.AddValueResponse(value=value)

    async def DeleteValue(
        self, request: pb.DeleteValueRequest, context: Any
    ) -> pb.DeleteValueResponse:
        self._check_round(request.round)
        existed = self._controller.keyvalue.delete(request.key)
        if existed:
            self._changed("key", request.key)
        await self._stored()
        return pb.DeleteValueResponse(existed=existed)

    async def Barrier(self, request: pb.BarrierRequest, context: Any) -> pb.BarrierResponse:
        self._check_round(request.round)
        if not self._controller.rendezvous.in_world(request.pod_uid):
            uid = request.pod_uid[:128]
            raise NotCurrent(f"pod UID {uid!r} is not in the world of round {request.round}")
        try:
            async with _within(request.wait_seconds):
                await self._pass(request)
        except TimeoutError:
            raise TimeoutError(self._missing_members(request.name)) from None
        await self._stored()
        return pb.BarrierResponse()

    async def MayCommit(self, request: pb.MayCommitRequest, context: Any) -> pb.MayCommitResponse:
        if not request.round:
            raise BadRequest("round is 0; it must be the round of the process that commits")
        check_may_commit(self._controller.rendezvous, request.pod_uid, request.round)
        return pb.MayCommitResponse()

    async def _pass(self, request: pb.BarrierRequest) -> None:
        barriers = self._controller.barriers
        name = request.name
        while True:
            before = barriers.passed.get(name, 0)
            passed = barriers.arrive(
                name, request.number, request.pod_uid, self._controller.rendezvous.barrier_uids()
            )
            if barriers.passed.get(name, 0) > before:
                self._changed("barrier", name)
            if passed:
                return
            if request.wait_seconds == 0:
                raise TimeoutError
            await self._waiters.wait(("barrier", name))
            self._check_round(request.round)

    def _give_up_barriers(self) -> None:
        """Refuse the calls that wait for processes that have ended."""
        barriers = self._controller.barriers
        if barriers.waited_for:
            for name in barriers.give_up(self._controller.rendezvous.ended_members()):
                self._waiters.wake(("barrier", name))

    def _missing_members(self, name: str) -> str:
        world = self._controller.rendezvous.barrier_uids()
        members = self._controller.members
        absent = [
            member
            for uid in self._controller.barriers.absent(name, world)
            if (member := members.get(uid))
        ]
        pods = ", ".join(member.identity.pod_name for member in absent[:5])
        examples = pods or "pods that were removed"
        return (
            f"barrier {name!r}: {len(absent)} of {len(world)} have not arrived, such as {examples}"
        )

    def _check_round(self, round_: int) -> None:
        check_round(round_, self._controller.keyvalue.round)

    def _changed(self, kind: str, name: str) -> None:
        self._controller.changed()
        self._last_change = self._state_writer.changes
        self._waiters.wake((kind, name))

    async def _stored(self) -> None:
        await self._state_writer.wait_until_stored(self._last_change, urgent=True)


@asynccontextmanager
async def _within(seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError after a request's wait_seconds. 0 means that it does not wait at all."""
    if not 0 <= seconds <= LONGEST_WAIT_SECONDS:
        raise BadRequest(f"wait_seconds is {seconds:g}; it must be 0 to {LONGEST_WAIT_SECONDS:g}")
    try:
        async with asyncio.timeout(seconds or None):
            yield
    except TimeoutError as error:
        raise TimeoutError("no value within wait_seconds") from error
