"""RemoteShellService: messages between the `ssh` of a launcher and the remote shells of workers.

The master passes them on from one waiting call to another, and keeps none. What they mean, it does
not know.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from elasticjob_api.refusals import BadRequest, LimitReached, NotCurrent, NotReadyYet, UnknownName
from elasticjob_api.v1 import remote_shell_pb2 as pb
from elasticjob_api.v1.remote_shell_pb2_grpc import RemoteShellServiceServicer

from elasticjob_master.controller import Controller
from elasticjob_master.server.services import errors

MOST_WAITING = 20_000
"""Calls that wait at a time: a process has four of them."""
LONGEST_DATA = 256 * 1024
MOST_DATA = 64 * 1024 * 1024
"""Bytes of all messages that wait at a time."""
LONGEST_TEXT = 253
LONGEST_WAIT_SECONDS = 60.0


@dataclass
class _Box:
    """One direction of one session: the messages that wait, and the calls that wait for one."""

    messages: dict[str, _Message] = field(default_factory=dict)
    receivers: set[asyncio.Future[None]] = field(default_factory=set)


@dataclass(eq=False)
class _Message:
    data: bytes
    taken: asyncio.Future[None]


class RemoteShellService(RemoteShellServiceServicer):
    """The boxes of a job's sessions; one exists as long as a call waits at it."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._boxes: dict[tuple[bool, str, str], _Box] = {}
        self._waiting = 0
        self._bytes = 0

    async def Send(self, request: pb.SendRequest, context: Any) -> pb.SendResponse:
        async with errors.abort_on_refusal(context):
            _check(request.host, request.session, request.id, wait_seconds=request.wait_seconds)
            if not request.id or len(request.data) > LONGEST_DATA:
                raise BadRequest(
                    f"id must be set, and data has {len(request.data)} bytes of at most {LONGEST_DATA}"
                )
            to_worker = self._is_launcher(request.pod_uid, request.host)
            if to_worker and not request.session and not self._is_listed(request.host):
                raise UnknownName(f"host {request.host!r} is not in the job's host list")
            if self._bytes + len(request.data) > MOST_DATA:
                raise LimitReached(
                    f"{self._bytes} bytes wait to be taken already; at most {MOST_DATA} may"
                )
            return await self._send((to_worker, request.host, request.session), request)

    async def Receive(self, request: pb.ReceiveRequest, context: Any) -> pb.ReceiveResponse:
        async with errors.abort_on_refusal(context):
            _check(request.host, request.session, request.taken, wait_seconds=request.wait_seconds)
            from_worker = self._is_launcher(request.pod_uid, request.host)
            key = (not from_worker, request.host, request.session)
            box = self._boxes.setdefault(key, _Box())
            if (taken := box.messages.pop(request.taken, None)) is not None:
                _wake(taken.taken)
            try:
                return await self._receive(box, request.wait_seconds)
            finally:
                self._forget(key, box)

    def _is_launcher(self, uid: str, host: str) -> bool:
        """Return whether the caller is a launcher; any other member speaks only for itself."""
        role = self._controller.framework.launcher_role
        if role is None:
            raise NotCurrent(
                "this job has no launcher: that is for framework horovod with a role launcher"
            )
        member = self._controller.members.get(uid)
        if member is None:
            raise NotReadyYet(f"pod {uid!r} is no member of this job")
        if member.identity.role != role and member.identity.pod_name != host:
            raise BadRequest(
                f"host is {host!r}; only a member of role {role} reaches others than itself"
            )
        return member.identity.role == role

    def _is_listed(self, host: str) -> bool:
        """Return whether a host may get new processes.

        What a leaving one still runs goes on to its next commit.
        """
        return host in (listed.name for listed in self._controller.hosts.value.hosts)

    async def _send(self, key: tuple[bool, str, str], request: pb.SendRequest) -> pb.SendResponse:
        box = self._boxes.setdefault(key, _Box())
        message = _Message(request.data, asyncio.get_running_loop().create_future())
        box.messages[request.id] = message
        self._bytes += len(request.data)
        for receiver in box.receivers:
            _wake(receiver)
        try:
            return pb.SendResponse(taken=await self._wait(message.taken, request.wait_seconds))
        finally:
            self._bytes -= len(request.data)
            if box.messages.get(request.id) is message:
                del box.messages[request.id]
            self._forget(key, box)

    async def _receive(self, box: _Box, seconds: float) -> pb.ReceiveResponse:
        if not box.messages:
            receiver: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            box.receivers.add(receiver)
            try:
                await self._wait(receiver, seconds)
            finally:
                box.receivers.discard(receiver)
        for name, message in box.messages.items():
            return pb.ReceiveResponse(id=name, data=message.data)
        return pb.ReceiveResponse()

    async def _wait(self, event: asyncio.Future[None], seconds: float) -> bool:
        if self._waiting >= MOST_WAITING:
            raise LimitReached(f"{MOST_WAITING} calls are waiting already")
        self._waiting += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await event
            return event.done() and not event.cancelled()
        finally:
            self._waiting -= 1

    def _forget(self, key: tuple[bool, str, str], box: _Box) -> None:
        if not box.messages and not box.receivers and self._boxes.get(key) is box:
            del self._boxes[key]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _check(*texts: str, wait_seconds: float) -> None:
    if any(len(text) > LONGEST_TEXT for text in texts):
        raise BadRequest(f"host, session and id have at most {LONGEST_TEXT} characters")
    if not 0 < wait_seconds <= LONGEST_WAIT_SECONDS:
        raise BadRequest(
            f"wait_seconds is {wait_seconds:g}; it must be more than 0, at most {LONGEST_WAIT_SECONDS:g}"
        )
