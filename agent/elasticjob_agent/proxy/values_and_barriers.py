"""Passes calls about values and barriers on to the master, for the processes of a world.

A call waits until a master answers. A call with a timeout ends after it with `{"late": why}`.
"""

from __future__ import annotations

import asyncio
import base64
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
from elasticjob_api.v1 import rendezvous_pb2 as pb
from elasticjob_api.v1.rendezvous_pb2_grpc import RendezvousServiceStub

from elasticjob_agent.proxy.master_call import CallError, call_until_answered
from elasticjob_agent.proxy.shards import Caller, Handler, Request

WAIT_SECONDS = 8.0
"""The longest time that the master holds one request: less than `CALL_TIMEOUT_SECONDS`."""
_FINAL_CALL_SECONDS = 1.0


class ValuesAndBarriers:
    """Handles calls about values and barriers, in the world of the process that calls."""

    def __init__(self, channel: grpc.aio.Channel, pod_uid: str) -> None:
        """Call over a channel to the master, in the name of a pod."""
        self._stub = RendezvousServiceStub(channel)
        self._pod_uid = pod_uid
        self.local_barriers = LocalBarriers()
        """Where the processes of this pod meet."""
        self.handlers: dict[str, Handler] = {
            "set_value": self._set,
            "get_values": self._get,
            "wait_values": self._wait,
            "add_value": self._add,
            "delete_value": self._delete,
            "barrier": self._barrier,
            "may_commit": self._may_commit,
        }
        """The handlers by the name of the call."""

    async def _set(self, request: Request, caller: Caller) -> Request:
        expected = request.get("expected")
        message = pb.SetValueRequest(
            round=caller.world_round,
            key=str(request["key"]),
            value=base64.b64decode(request["value"], validate=True),
            expected=None if expected is None else base64.b64decode(expected, validate=True),
            if_absent=bool(request.get("if_absent", False)),
        )
        answer = await call_until_answered(self._stub.SetValue, message)
        return {"value": _text(answer.value) if answer.present else None}

    async def _get(self, request: Request, caller: Caller) -> Request:
        message = pb.GetValuesRequest(round=caller.world_round, keys=_keys(request))
        try:
            answer = await call_until_answered(self._stub.GetValues, message)
        except CallError as error:
            if error.code is grpc.StatusCode.NOT_FOUND:
                return {"values": None}
            raise
        return {"values": [_text(value) for value in answer.values]}

    async def _wait(self, request: Request, caller: Caller) -> Request:
        message = pb.GetValuesRequest(
            round=caller.world_round, keys=_keys(request), wait_seconds=WAIT_SECONDS
        )
        answer = await self._call_with_timeout(self._stub.GetValues, message, request)
        if isinstance(answer, dict):
            return answer
        return {"values": [_text(value) for value in answer.values]}

    async def _add(self, request: Request, caller: Caller) -> Request:
        message = pb.AddValueRequest(
            round=caller.world_round,
            key=str(request["key"]),
            amount=int(request["amount"]),
            request_id=uuid.uuid4().hex,
        )
        return {"value": (await call_until_answered(self._stub.AddValue, message)).value}

    async def _delete(self, request: Request, caller: Caller) -> Request:
        message = pb.DeleteValueRequest(round=caller.world_round, key=str(request["key"]))
        return {"existed": (await call_until_answered(self._stub.DeleteValue, message)).existed}

    async def _barrier(self, request: Request, caller: Caller) -> Request:
        message = pb.BarrierRequest(
            round=caller.world_round,
            name=str(request["barrier"]),
            number=int(request.get("number", 0)),
            pod_uid=self._pod_uid,
            wait_seconds=WAIT_SECONDS,
        )
        timeout = request.get("timeout")
        begun = time.monotonic()
        seconds = None if timeout is None else _seconds(timeout)
        try:
            # The master counts members: this one arrives with its last process.
            await self.local_barriers.arrive(message.name, message.number, caller, seconds)
        except TimeoutError as late:
            return {"late": str(late)}
        rest = None if seconds is None else max(0.0, begun + seconds - time.monotonic())
        answer = await self._call_with_timeout(
            self._stub.Barrier, message, {**request, "timeout": rest}
        )
        return answer if isinstance(answer, dict) else {}

    async def _may_commit(self, request: Request, caller: Caller) -> Request:
        message = pb.MayCommitRequest(round=caller.round, pod_uid=self._pod_uid)
        seconds = _seconds(request["timeout"])
        try:
            async with asyncio.timeout(seconds):
                await call_until_answered(self._stub.MayCommit, message)
        except TimeoutError:
            return {"why_not": f"no master has confirmed it within {seconds:g} s"}
        except CallError as error:
            if error.code is grpc.StatusCode.UNIMPLEMENTED:  # a master of an earlier version
                return {}
            return {"why_not": str(error)}
        return {}

    async def _call_with_timeout(self, method: Any, message: Any, request: Request) -> Any:
        """Call until the master answers; return `{"late": why}` after the request's timeout."""
        timeout = request.get("timeout")
        seconds = None if timeout is None else _seconds(timeout)
        try:
            async with asyncio.timeout(seconds):
                return await call_until_answered(method, message)
        except TimeoutError:
            message.wait_seconds = 0.0
        try:
            return await method(message, timeout=_FINAL_CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            return {"late": error.details() or error.code().name}


def _seconds(timeout: Any) -> float:
    seconds = float(timeout)
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"timeout is {seconds:g}; it must be a number of seconds, 0 or more")
    return seconds


def _keys(request: Request) -> list[str]:
    keys = request["keys"]
    if not isinstance(keys, list):
        raise ValueError("keys must be a list")
    return [str(key) for key in keys]


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()


MOST_BARRIERS = 1024
"""The master's bound of names in a round."""


@dataclass
class _Barrier:
    """The present use of a barrier, counted from 0, and the local ranks that have arrived.

    `problem` says why the processes do not wait for it any more.
    """

    number: int = 0
    arrived: set[int] = field(default_factory=set)
    passed: asyncio.Event = field(default_factory=asyncio.Event)
    problem: str = ""


class LocalBarriers:
    """The barriers of the present round."""

    def __init__(self) -> None:
        self._round = 0
        self._barriers: dict[str, _Barrier] = {}
        self._ended: set[int] = set()

    def begin(self, round_: int) -> None:
        """Begin the world of a later round, and release the processes that wait in earlier ones."""
        if round_ <= self._round:
            return
        self._round = round_
        self._end_waits(f"its world has ended; the world of round {round_} has begun")

    def begin_processes(self) -> None:
        """Begin with new processes, which have reached no barrier."""
        self._ended = set()
        self._end_waits("its processes have ended")

    def process_ended(self, local_rank: int) -> None:
        """End the waits for a process of this member that has ended."""
        self._ended.add(local_rank)
        for barrier in self._barriers.values():
            if local_rank not in barrier.arrived:
                barrier.problem = _has_ended(local_rank)
                barrier.passed.set()

    def _end_waits(self, problem: str) -> None:
        earlier = self._barriers
        self._barriers = {}
        for barrier in earlier.values():
            barrier.problem = problem
            barrier.passed.set()

    async def arrive(self, name: str, number: int, caller: Caller, seconds: float | None) -> None:
        """Wait until all processes of this member have arrived at a use of a barrier.

        A repeated arrival is harmless.

        Raises:
            TimeoutError: not all have arrived within `seconds`; the message names the missing ones.
            CallError: there are too many barriers, or the world or a missing process has ended.
        """
        if caller.local_size == 1 or caller.world_round < self._round:
            return  # alone, or in a world that has ended, which the master refuses
        self.begin(caller.world_round)
        if name not in self._barriers and len(self._barriers) >= MOST_BARRIERS:
            raise CallError(
                f"this round has {MOST_BARRIERS} barriers, which is the bound; {name!r} is refused"
            )
        barrier = self._barriers.setdefault(name, _Barrier())
        if number < barrier.number:
            return
        barrier.arrived.add(caller.local_rank)
        passed = barrier.passed
        for ended in self._ended - barrier.arrived:
            raise CallError(f"barrier {name!r}: {_has_ended(ended)}")
        if len(barrier.arrived) >= caller.local_size:
            passed.set()
            self._barriers[name] = _Barrier(barrier.number + 1)
        try:
            async with asyncio.timeout(seconds):
                await passed.wait()
        except TimeoutError:
            missing = [
                str(each) for each in range(caller.local_size) if each not in barrier.arrived
            ]
            absent = f"{len(missing)} of {caller.local_size} processes of this pod have not arrived"
            raise TimeoutError(
                f"barrier {name!r}: {absent}, local ranks {', '.join(missing)}"
            ) from None
        if barrier.problem:
            raise CallError(f"barrier {name!r}: {barrier.problem}")


def _has_ended(local_rank: int) -> str:
    return f"the process of local rank {local_rank} of this pod has ended and had not arrived"
