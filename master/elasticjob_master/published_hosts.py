"""The host list that is published to its watchers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from elasticjob_master.broadcast import Broadcast
from elasticjob_master.core.rendezvous.host_discovery import Host, HostList, next_host_list
from elasticjob_master.core.rendezvous.members import Member


class PublishedHosts(Broadcast[HostList]):
    """The present host list, and a way to follow it."""

    def __init__(self, role: str | None) -> None:
        """Begin with an empty list; `role` is the role whose members are hosts, None means every role."""
        super().__init__(HostList())
        self._role = role

    def update(self, members: Iterable[Member], *, settled: bool) -> bool:
        """Publish the members if they differ and a change is possible now; return whether they were published."""
        fresh = next_host_list(self.value, members, role=self._role, settled=settled)
        changed = fresh is not self.value
        if changed:
            self.publish(fresh)
        return changed

    def restore(self, version: int, hosts: Iterable[tuple[str, int, str]]) -> None:
        """Publish what an earlier master had published."""
        self.publish(HostList(version, tuple(Host(*host) for host in hosts)))

    def stored(self) -> Sequence[tuple[str, int, str]]:
        """Return the hosts as they are stored, beside the list's version."""
        return [(host.name, host.slots, host.address) for host in self.value.hosts]
