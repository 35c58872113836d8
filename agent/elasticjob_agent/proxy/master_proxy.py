"""Calls of the training process for the master: data shards, host lists, values and barriers.

The agent passes them on, so that nothing is lost when either side restarts: a call waits until a
master answers, and a report of finished shards is sent even if the process that made it has exited.
Shards that a process had leased and not reported need no call: the master takes them back when it
learns that the process has exited.
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
                    hosts = (
                        await call_until_answered(
                            self._discovery.GetHosts, discovery.GetHostsRequest()
                        )
                    ).hosts
                    return {
                        "hosts": [
                            {"name": h.name, "slots": h.slots, "address": h.address} for h in hosts
                        ]
                    }
                case other:
                    raise CallError(f"unknown call {other!r}")
        except KeyError as error:
            raise CallError(f"field {error} is missing") from error
        except (TypeError, ValueError, OverflowError) as error:
            raise CallError(f"bad field: {error}") from error

    def world_over(self, round_: int) -> None:
        """Let nobody wait any more for what belongs to worlds before that of a round."""
        self._values.world_over(round_)

    def leased_shards(self) -> list[agent_pb2.LeasedShards]:
        """Return what the training processes have leased, as far as no master has confirmed that it is reported."""
        return self._shards.leased()

    async def disconnected(self, caller: Caller) -> None:
        """Give back the shards that an ended connection had leased, and close its session of a remote shell."""
        await self._shards.disconnected(caller)
        await self._shell_messages.disconnected(caller)
