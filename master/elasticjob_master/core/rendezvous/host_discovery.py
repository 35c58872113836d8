"""The published host list: what Horovod's host discovery and `WatchHosts` show.

Horovod loses a change made while it takes another, so its next list is published only when the world that belongs to
the last one has formed. It also gives up when none of its hosts remains, so no list replaces every host of the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elasticjob_master.core.rendezvous.members import Member


@dataclass(frozen=True)
class Host:
    """One line of the list; the pod's name is never used twice."""

    name: str
    slots: int
    address: str


@dataclass(frozen=True)
class HostList:
    """A published list; `version` grows by one with every change."""

    version: int = 0
    hosts: tuple[Host, ...] = ()

    def text(self) -> str:
        """Return the list as Horovod reads it: a line `host:slots` for each."""
        return "".join(f"{host.name}:{host.slots}\n" for host in self.hosts)


def next_host_list(published: HostList, members: Iterable[Member], *, role: str | None, settled: bool) -> HostList:
    """Return what is to be published now: the same object when nothing changes or the last change is still taken in.

    Args:
        published: the present list.
        members: all members, oldest first.
        role: the role whose members are hosts; None means every role.
        settled: nobody is taking in the present list, so that a change could be lost.
    """
    if not settled:
        return published
    candidates = [m for m in members if role is None or m.identity.role == role]
    # One whose agent is away but had started its process trains on, for all that is known, until it is taken for lost.
    present = [m for m in candidates if m.available or (m.started and not m.leaving)]
    if len(present) == len(published.hosts) and all(map(_shows, published.hosts, present)):
        return published
    hosts = tuple(map(_host, present))
    known = {host.name for host in published.hosts}
    if hosts and known and known.isdisjoint(host.name for host in hosts):
        # One that is leaving stays until the new ones have met it.
        hosts = (*(_host(m) for m in candidates if m.identity.pod_name in known and not m.succeeded), *hosts)
    if hosts == published.hosts:
        return published
    return HostList(published.version + 1, hosts)


def _shows(host: Host, member: Member) -> bool:
    """Tell whether this is the member's line; cheaper than to make the line, and asked of thousands many times."""
    who = member.identity
    return host.name == who.pod_name and host.slots == who.slots and host.address == who.address


def _host(member: Member) -> Host:
    return Host(member.identity.pod_name, member.identity.slots, member.identity.address)
