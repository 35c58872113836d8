"""Passes the messages of a remote shell on: between a launcher's `ssh` and a worker's program."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import suppress

import grpc.aio
from elasticjob_api.v1 import remote_shell_pb2 as pb
from elasticjob_api.v1.remote_shell_pb2_grpc import RemoteShellServiceStub

from elasticjob_agent.proxy.master_call import CallError, call_until_answered
from elasticjob_agent.proxy.shards import Caller, Request
from elasticjob_agent.remote_shell.session import CLOSED

WAIT_SECONDS = 2.0
"""The longest time that the master holds one call: less than `CALL_TIMEOUT_SECONDS`."""


class ShellMessages:
    """Passes messages on, and closes a session when the connection of one end is closed."""

    def __init__(self, channel: grpc.aio.Channel, pod_uid: str) -> None:
        """Call over a channel to the master, in the name of a pod."""
        self._stub = RemoteShellServiceStub(channel)
        self._pod_uid = pod_uid
        self._sessions: dict[Caller, tuple[str, str]] = {}
        self.handlers: dict[str, Callable[[Request, Caller], Awaitable[Request]]] = {
            "shell_send": self._send,
            "shell_receive": self._receive,
        }
        """The handlers by the name of the call; they raise KeyError, TypeError or ValueError for a
        bad request.
        """

    async def disconnected(self, caller: Caller) -> None:
        """Close the session of an ended connection."""
        session = self._sessions.pop(caller, None)
        if session is not None:
            with suppress(CallError):  # a removed member has no session either
                await self._pass_on(*session, "close", json.dumps(CLOSED))

    async def _send(self, request: Request, caller: Caller) -> Request:
        host = str(request["host"])
        session = str(request["session"])
        if session:
            self._sessions[caller] = host, session
        message = str(request["message"])
        return {"taken": await self._pass_on(host, session, message, str(request["data"]))}

    async def _receive(self, request: Request, _caller: Caller) -> Request:
        message = pb.ReceiveRequest(
            pod_uid=self._pod_uid,
            host=str(request["host"]),
            session=str(request["session"]),
            taken=str(request["taken"]),
            wait_seconds=WAIT_SECONDS,
        )
        answer = await call_until_answered(self._stub.Receive, message)
        return {"message": answer.id, "data": answer.data.decode()}

    async def _pass_on(self, host: str, session: str, name: str, data: str) -> bool:
        message = pb.SendRequest(
            pod_uid=self._pod_uid,
            host=host,
            session=session,
            id=name,
            data=data.encode(),
            wait_seconds=WAIT_SECONDS,
        )
        answer: pb.SendResponse = await call_until_answered(self._stub.Send, message)
        return answer.taken
