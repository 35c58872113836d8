"""The published host list, which Horovod's host discovery script and `WatchHosts` read.

Horovod misses a change of the hosts that is made while it handles the one before. So the next list
is published only when the world of the last list has formed. Horovod also gives up when none of its
hosts remains. So no list replaces all hosts of the last one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from elasticjob_api.addresses import host_port

from elasticjob_master.core.rendezvous.members import Member


class Host(NamedTuple):
    """One line of the list. `name` is the name of the pod, which is never used again."""

    name: str
    slots: int
    address: str


@dataclass(frozen=True)
class HostList:
    """A published list. Every change increases its version by one."""

    version: int = 0
    hosts: tuple[Host, ...] = ()

    def text(self, *, addresses: bool = False) -> str:
        """Return the list as Horovod reads it: a line `host:slots` for each pod."""
        return "".join(
            f"{host_port(host.address if addresses else host.name, host.slots)}\n"
            for host in self.hosts
        )


def next_host_list(
    published: HostList, members: Iterable[Member], *, role: str | None, settled: bool
) -> HostList:
    """Return the list to publish now: `published` itself if it does not change or must not yet.

    Args:
        published: the present list.
        members: all members, oldest first.
        role: the role whose members are hosts; None means every role.
        settled: the world of the present list has formed, so a change is not missed.
    """
    if not settled:
        return published
    candidates = [m for m in members if role is None or m.identity.role == role]
    # A started process probably continues while its agent is disconnected.
    present = [m for m in candidates if m.available or (m.started and not m.leaving)]
    if len(present) == len(published.hosts) and all(map(_describes, published.hosts, present)):
        return published
    kept = published.hosts
    if len(kept) > len(present) or not all(map(_describes, kept, present)):
        kept = ()
    hosts = (*kept, *map(_host, present[len(kept) :]))
    known = {host.name for host in published.hosts}
    if hosts and known and known.isdisjoint(host.name for host in hosts):
        # A leaving host stays in the list until the new hosts have met it.
        hosts = (
            *(_host(m) for m in candidates if m.identity.pod_name in known and not m.succeeded),
            *hosts,
        )
    if hosts == published.hosts:
        return published
    return HostList(published.version + 1, hosts)


def _describes(host: Host, member: Member) -> bool:
    """Return whether this is the member's line.

    Comparing fields is faster than creating a line for each of thousands of members.
    """
    who = member.identity
    return host.name == who.pod_name and host.slots == who.slots and host.address == who.address


def _host(member: Member) -> Host:
    return Host(member.identity.pod_name, member.identity.slots, member.identity.address)
