"""DiscoveryService: the published host list, once or whenever it changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from elasticjob_api.refusals import LimitReached
from elasticjob_api.v1 import discovery_pb2 as pb
from elasticjob_api.v1.discovery_pb2_grpc import DiscoveryServiceServicer

from elasticjob_master.controller import Controller
from elasticjob_master.server import protobuf

MOST_HOST_WATCHES = 256


class DiscoveryService(DiscoveryServiceServicer):
    """Serves the list of hosts that can train."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._watches = 0

    async def GetHosts(self, request: pb.GetHostsRequest, context: Any) -> pb.HostList:
        return protobuf.host_list(self._controller.hosts.value)

    async def WatchHosts(
        self, request: pb.WatchHostsRequest, context: Any
    ) -> AsyncIterator[pb.HostList]:
        if self._watches >= MOST_HOST_WATCHES:
            raise LimitReached(
                f"{self._watches} watches of hosts are open, which is the limit; "
                "end one, or use GetHosts"
            )
        self._watches += 1
        try:
            async for hosts in self._controller.hosts.follow():
                yield protobuf.host_list(hosts)
        finally:
            self._watches -= 1
