"""Passes calls of the training process on to the master: data shards, hosts, values, barriers.

Nothing is lost when either side restarts: a call waits until a master answers, and a report of
finished shards is sent even if its process has exited. Shards that a process had leased and not
reported need no call: the master takes them back when it learns of the exit.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress

import grpc.aio
from elasticjob_api import packed_worlds
from elasticjob_api.v1 import agent_pb2
from elasticjob_api.v1 import discovery_pb2 as discovery
from elasticjob_api.v1 import remote_shell_pb2 as pb
from elasticjob_api.v1.agent_pb2_grpc import AgentServiceStub
from elasticjob_api.v1.discovery_pb2_grpc import DiscoveryServiceStub
from elasticjob_api.v1.remote_shell_pb2_grpc import RemoteShellServiceStub

from elasticjob_agent.proxy.master_call import CallError, call_until_answered
from elasticjob_agent.proxy.shards import Caller, Handler, Request, ShardProxy
from elasticjob_agent.proxy.values_and_barriers import ValuesAndBarriers
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
        self.handlers: dict[str, Handler] = {
            "shell_send": self._send,
            "shell_receive": self._receive,
        }
        """The handlers by the name of the call."""

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


class MasterProxy:
    """Finds the handler of a call by its name."""

    def __init__(
        self, channel: grpc.aio.Channel, pod_uid: str, others: Mapping[str, Handler]
    ) -> None:
        """Call in the name of a pod; the agent itself answers the `others`, by name."""
        self._shards = ShardProxy(channel, pod_uid)
        values = ValuesAndBarriers(channel, pod_uid)
        self.local_barriers = values.local_barriers
        """Where the processes of this pod meet."""
        self._shell_messages = ShellMessages(channel, pod_uid)
        self._agent_service = AgentServiceStub(channel)
        self._fetching = asyncio.Lock()
        self._fetched = agent_pb2.World()
        """The latest world whose list of members was left out of its Start, with that list."""
        self._discovery = DiscoveryServiceStub(channel)
        self._handlers: dict[str, Handler] = {
            **others,
            **self._shards.handlers,
            **values.handlers,
            **self._shell_messages.handlers,
            "hosts": self._hosts,
        }

    async def call(self, request: Request, caller: Caller) -> Request:
        """Answer a request; raises CallError if it is refused, or not understood."""
        name = request.get("call")
        handler = self._handlers.get(name) if isinstance(name, str) else None
        if handler is None:
            raise CallError(f"unknown call {name!r}")
        try:
            return await handler(request, caller)
        except KeyError as error:
            raise CallError(f"field {error} is missing") from error
        except (TypeError, ValueError, OverflowError) as error:
            raise CallError(f"bad field: {error}") from error

    async def _hosts(self, _request: Request, _caller: Caller) -> Request:
        message = discovery.GetHostsRequest()
        answer = await call_until_answered(self._discovery.GetHosts, message)
        return {
            "hosts": [
                {"name": host.name, "slots": host.slots, "address": host.address}
                for host in answer.hosts
            ]
        }

    async def members(self, world: agent_pb2.World) -> Sequence[agent_pb2.Member]:
        """Return the members of a world; a list that was left out is fetched once for the pod.

        Raises CallError if the world has ended, or the master does not know its members any more.
        """
        if not world.member_count:
            return world.members
        async with self._fetching:
            if self._fetched.round != world.round:
                message = agent_pb2.GetWorldOfRoundRequest(round=world.round)
                answer = await call_until_answered(self._agent_service.GetWorldOfRound, message)
                try:
                    fetched = packed_worlds.unpack(answer.packed_world)
                except ValueError as error:
                    raise CallError(str(error)) from error
                if packed_worlds.digest(fetched) != world.digest:
                    raise CallError(
                        f"the master has restarted and does not know the members of round "
                        f"{world.round} any more; the world of another round follows"
                    )
                self._fetched = fetched
            return self._fetched.members

    def leased_shards(self) -> list[agent_pb2.LeasedShards]:
        """Return the leased shards of which no master has confirmed a report."""
        return self._shards.leased()

    async def disconnected(self, caller: Caller) -> None:
        """Return the leased shards of an ended connection, and close its remote shell."""
        await self._shards.disconnected(caller)
        await self._shell_messages.disconnected(caller)
