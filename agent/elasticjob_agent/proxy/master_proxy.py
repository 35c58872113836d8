"""Passes calls of the training process on to the master: data shards, hosts, values, barriers.

Nothing is lost when either side restarts: a call waits until a master answers, and a report of
finished shards is sent even if its process has exited. Shards that a process had leased and not
reported need no call: the master takes them back when it learns of the exit.
"""

from __future__ import annotations

from typing import Any

import grpc.aio
from elasticjob_api.v1 import agent_pb2
from elasticjob_api.v1 import discovery_pb2 as discovery
from elasticjob_api.v1.discovery_pb2_grpc import DiscoveryServiceStub

from elasticjob_agent.proxy.master_call import CallError, call_until_answered
from elasticjob_agent.proxy.shards import Caller, ShardProxy
from elasticjob_agent.proxy.shell_messages import ShellMessages
from elasticjob_agent.proxy.values_and_barriers import ValuesAndBarriers


class MasterProxy:
    """Finds the handler of a call by its name."""

    def __init__(self, channel: grpc.aio.Channel, pod_uid: str) -> None:
        """Call over a channel to the master, in the name of a pod."""
        self._shards = ShardProxy(channel, pod_uid)
        self._values = ValuesAndBarriers(channel, pod_uid)
        self._shell_messages = ShellMessages(channel, pod_uid)
        self._discovery = DiscoveryServiceStub(channel)

    async def call(self, request: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Answer one request of a connection.

        Raises:
            CallError: the request is not understood, or the master refuses it.
        """
        try:
            match request.get("call"):
                case str(name) if name in self._shards.handlers:
                    return await self._shards.handlers[name](request, caller)
                case str(name) if name in self._values.handlers:
                    return await self._values.handlers[name](request, caller)
                case str(name) if name in self._shell_messages.handlers:
                    return await self._shell_messages.handlers[name](request, caller)
                case "hosts":
                    return await self._hosts()
                case other:
                    raise CallError(f"unknown call {other!r}")
        except KeyError as error:
            raise CallError(f"field {error} is missing") from error
        except (TypeError, ValueError, OverflowError) as error:
            raise CallError(f"bad field: {error}") from error

    async def _hosts(self) -> dict[str, Any]:
        request = discovery.GetHostsRequest()
        answer = await call_until_answered(self._discovery.GetHosts, request)
        return {
            "hosts": [
                {"name": host.name, "slots": host.slots, "address": host.address}
                for host in answer.hosts
            ]
        }

    def world_over(self, round_: int) -> None:
        """Release the processes that wait in worlds before that of a round."""
        self._values.world_over(round_)

    def leased_shards(self) -> list[agent_pb2.LeasedShards]:
        """Return the leased shards of which no master has confirmed a report."""
        return self._shards.leased()

    async def disconnected(self, caller: Caller) -> None:
        """Return the leased shards of an ended connection, and close its remote shell."""
        await self._shards.disconnected(caller)
        await self._shell_messages.disconnected(caller)
