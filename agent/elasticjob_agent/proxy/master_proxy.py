"""What the training process asks the master for: shards and host lists, fetched on its behalf.

The agent stands between the two so that nothing is lost when either is away: a call waits for a master that is coming
back, and a report of finished shards outlives the process that made it. What a process had leased and not reported
goes back by itself: the master hears of the process' end.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio
from elasticjob_api.v1 import discovery_pb2 as discovery
from elasticjob_api.v1.discovery_pb2_grpc import DiscoveryServiceStub

from elasticjob_agent.proxy.rendezvous import RendezvousCalls
from elasticjob_agent.proxy.shards import Caller, ShardCalls

RETRIED = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})
CALL_SECONDS = 10.0
RETRY_SECONDS = 0.5


class BadCall(Exception):
    """A call of the training process that cannot be answered; the message is for its user."""


class Calls:
    """The calls of the training process."""

    def __init__(self, channel: grpc.aio.Channel, pod_uid: str) -> None:
        """Call over a channel, in the name of a pod."""
        self._shards = ShardCalls(channel, pod_uid, _persist, BadCall)
        self._rendezvous = RendezvousCalls(channel, pod_uid, _persist, BadCall)
        self._discovery = DiscoveryServiceStub(channel)

    async def call(self, request: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Answer one request of a connection.

        Raises:
            BadCall: the request is not understood, or the master refuses it.
        """
        try:
            match request.get("call"):
                case str(name) if name in self._shards.calls:
                    return await self._shards.calls[name](request, caller)
                case str(name) if name in self._rendezvous.calls:
                    return await self._rendezvous.calls[name](request, caller)
                case "hosts":
                    hosts = (await _persist(self._discovery.GetHosts, discovery.GetHostsRequest())).hosts
                    return {"hosts": [{"name": h.name, "slots": h.slots, "address": h.address} for h in hosts]}
                case other:
                    raise BadCall(f"unknown call {other!r}")
        except KeyError as error:
            raise BadCall(f"field {error} is missing") from error
        except (TypeError, ValueError, OverflowError) as error:
            raise BadCall(f"bad field: {error}") from error

    async def left(self, caller: Caller) -> None:
        """Tidy up after a connection that has ended."""
        await self._shards.left(caller)


async def _persist(method: Any, message: Any) -> Any:
    """Call until the master answers; a refusal is an answer."""
    while True:
        try:
            return await method(message, timeout=CALL_SECONDS, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() not in RETRIED:
                raise BadCall(f"{error.code().name}: {error.details()}") from error
        await asyncio.sleep(RETRY_SECONDS)
