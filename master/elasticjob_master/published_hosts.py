"""The host list that is published to its followers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from elasticjob_master.core.rendezvous.host_discovery import Host, HostList, next_host_list
from elasticjob_master.core.rendezvous.members import Member


class PublishedHosts:
    """The published host list, and a way to follow it. A slow follower delays no other.

    Attributes:
        value: the published list.
        latest: the list that is published, or will be as soon as it is stored.
    """

    def __init__(self, role: str | None) -> None:
        """Begin with an empty list. The hosts are the members of `role`, or all if that is None."""
        self.value = HostList()
        self.latest = self.value
        self._role = role
        self._next = asyncio.Event()

    async def follow(self) -> AsyncIterator[HostList]:
        """Yield the present list, then every newer one. Lists in between may be skipped."""
        while True:
            newer = self._next
            value = self.value
            yield value
            if newer is self._next:
                await newer.wait()

    def _publish(self, value: HostList) -> None:
        """Replace the list and wake its followers."""
        self.value = value
        self._next.set()
        self._next = asyncio.Event()

    def update(self, members: Iterable[Member], *, settled: bool) -> bool:
        """Make a new list if the members differ and a change is possible; return whether it did."""
        if self.latest is not self.value:
            return False  # no list is skipped, as each follows from the one before
        self.latest = next_host_list(self.value, members, role=self._role, settled=settled)
        return self.latest is not self.value

    def publish_latest(self, *, stored_version: int) -> None:
        """Publish the latest list if this version, or a later one, is stored."""
        if self.latest is not self.value and self.latest.version <= stored_version:
            self._publish(self.latest)

    def restore(self, version: int, hosts: Iterable[Host]) -> None:
        """Publish the list that an earlier master had published."""
        self.latest = HostList(version, tuple(hosts))
        self._publish(self.latest)
