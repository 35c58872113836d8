"""The host list that is published to its followers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

from elasticjob_master.core.rendezvous.host_discovery import Host, HostList, next_host_list
from elasticjob_master.core.rendezvous.state import RendezvousState
from elasticjob_master.decision_timer import DecisionTimer

_SHARE_OF_TIME = 0.02
"""The largest share of the time that new lists may take. While members join one after the other, a
list of thousands is not made for each of them.
"""


class PublishedHosts:
    """The published host list, and a way to follow it. A slow follower delays no other.

    Attributes:
        value: the published list.
        latest: the list that is published, or will be as soon as it is stored.
    """

    def __init__(
        self,
        role: str | None,
        state: RendezvousState,
        clock: Callable[[], float],
        *,
        on_new: Callable[[], None],
    ) -> None:
        """Begin with an empty list; it is not made before the members have changed.

        The members of one role are hosts, or all if it is None. `on_new` is called when there is a
        new list, which is not published yet.
        """
        self.value = HostList()
        self.latest = self.value
        self._role = role
        self._state = state
        self._settled = False
        self._timer = DecisionTimer(self._make, clock, _SHARE_OF_TIME)
        self._made_from: tuple[bool, int, bool] | None = None
        self._on_new = on_new
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

    def update(self, *, settled: bool) -> None:
        """Make a new list soon if the members have changed. `settled`: see `next_host_list`."""
        self._settled = settled
        if self._facts() != self._made_from:
            self._timer.decide_if_due()  # otherwise the next call tries again

    def _facts(self) -> tuple[bool, int, bool]:
        """Return what differs if the list may."""
        return self._settled, self._state.changes, self.latest is self.value

    def _make(self) -> None:
        self._made_from = self._facts()
        if self.latest is not self.value:
            return  # no list is skipped, as each follows from the one before
        self.latest = next_host_list(
            self.value, self._state.members, role=self._role, settled=self._settled
        )
        if self.latest is not self.value:
            self._on_new()

    def publish_latest(self, *, stored_version: int) -> None:
        """Publish the latest list if this version, or a later one, is stored."""
        if self.latest is not self.value and self.latest.version <= stored_version:
            self._publish(self.latest)

    def restore(self, version: int, hosts: Iterable[Host]) -> None:
        """Publish the list that an earlier master had published."""
        self.latest = HostList(version, tuple(hosts))
        self._publish(self.latest)
