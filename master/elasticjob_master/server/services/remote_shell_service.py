"""RemoteShellService: messages between the `ssh` of a launcher and the remote shells of workers.

The master passes each message from one waiting call to another. It keeps none and does not read
them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from elasticjob_api.refusals import BadRequest, LimitReached, NotCurrent, NotReadyYet, UnknownName
from elasticjob_api.v1 import remote_shell_pb2 as pb
from elasticjob_api.v1.remote_shell_pb2_grpc import RemoteShellServiceServicer

from elasticjob_master.controller import Controller
from elasticjob_master.server.callers import Callers
from elasticjob_master.server.services.waiters import Waiters, checked_wait

MOST_WAITING = 20_000
"""Calls that wait at the same time. Each remote process has four of them."""
LONGEST_DATA = 256 * 1024
MOST_DATA = 64 * 1024 * 1024
"""Bytes of all messages that wait at the same time."""
LONGEST_TEXT = 253

_Direction = tuple[bool, str, str]
"""One direction of one session: whether it leads to the worker, the host, and the session."""


@dataclass(eq=False)
class _Message:
    data: bytes
    received: bool = False


class RemoteShellService(RemoteShellServiceServicer):
    """Passes messages on. A message exists while its Send call waits for the receiver."""

    def __init__(self, controller: Controller, callers: Callers) -> None:
        self._controller = controller
        self._callers = callers
        self._messages: dict[_Direction, dict[str, _Message]] = {}
        """The messages of each direction, by their IDs."""
        self._waiters = Waiters(MOST_WAITING)
        """Receive calls wait for a message in their direction, Send calls for their message to be
        received.
        """
        self._bytes = 0

    async def Send(self, request: pb.SendRequest, context: Any) -> pb.SendResponse:
        _check(request.host, request.session, request.id, wait_seconds=request.wait_seconds)
        if not request.id or len(request.data) > LONGEST_DATA:
            size = len(request.data)
            raise BadRequest(f"id must be set, and data has {size} bytes of at most {LONGEST_DATA}")
        to_worker = self._is_launcher(request.pod_uid, request.host, context)
        if to_worker and not request.session and not self._is_listed(request.host):
            raise UnknownName(f"host {request.host!r} is not in the job's host list")
        if self._bytes + len(request.data) > MOST_DATA:
            raise LimitReached(
                f"{self._bytes} bytes are waiting already; at most {MOST_DATA} may wait"
            )
        return await self._send((to_worker, request.host, request.session), request)

    async def Receive(self, request: pb.ReceiveRequest, context: Any) -> pb.ReceiveResponse:
        _check(request.host, request.session, request.taken, wait_seconds=request.wait_seconds)
        from_worker = self._is_launcher(request.pod_uid, request.host, context)
        direction = (not from_worker, request.host, request.session)
        received = self._remove(direction, request.taken)
        if received is not None:
            received.received = True
            self._waiters.wake(received)
        if direction not in self._messages:
            await self._wait(direction, request.wait_seconds)
        for name, message in self._messages.get(direction, {}).items():
            return pb.ReceiveResponse(id=name, data=message.data)
        return pb.ReceiveResponse()

    def _is_launcher(self, uid: str, host: str, context: Any) -> bool:
        """Return whether the caller is a launcher. Another member may only name its own host.

        A caller is the member whose agent's stream is open on the same connection.
        """
        role = self._controller.framework.launcher_role
        if role is None:
            raise NotCurrent(
                "this job has no launcher: that is for framework horovod with a role launcher"
            )
        member = self._controller.members.get(uid)
        if member is None:
            raise NotReadyYet(f"pod {uid!r} is not a member of this job")
        if not self._callers.is_agent_of(uid, context.peer()):
            raise NotReadyYet(
                f"pod {uid!r} has no agent's stream on this connection; "
                "only its agent may send and receive in its name"
            )
        if member.identity.role != role and member.identity.pod_name != host:
            raise BadRequest(
                f"host is {host!r}; only a member of role {role} may name another host than its own"
            )
        return member.identity.role == role

    def _is_listed(self, host: str) -> bool:
        """Return whether a host may start new processes. A leaving host may only finish its own."""
        return host in (listed.name for listed in self._controller.hosts.value.hosts)

    async def _send(self, direction: _Direction, request: pb.SendRequest) -> pb.SendResponse:
        message = _Message(request.data)
        self._messages.setdefault(direction, {})[request.id] = message
        self._bytes += len(request.data)
        self._waiters.wake(direction)
        try:
            await self._wait(message, request.wait_seconds)
            return pb.SendResponse(taken=message.received)
        finally:
            self._bytes -= len(request.data)
            if self._messages.get(direction, {}).get(request.id) is message:
                self._remove(direction, request.id)

    def _remove(self, direction: _Direction, name: str) -> _Message | None:
        messages = self._messages.get(direction, {})
        message = messages.pop(name, None)
        if message is not None and not messages:
            del self._messages[direction]
        return message

    async def _wait(self, key: _Direction | _Message, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._waiters.wait(key)


def _check(*texts: str, wait_seconds: float) -> None:
    if any(len(text) > LONGEST_TEXT for text in texts):
        raise BadRequest(f"host, session and id have at most {LONGEST_TEXT} characters")
    checked_wait(wait_seconds)
