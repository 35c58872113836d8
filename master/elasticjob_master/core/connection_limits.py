"""Decides which connections to a port are closed, so that strangers cannot exhaust the master.

A client is a stranger until a call on its connection has shown a token. Strangers have little time
for that. If there are too many of them, the oldest connections are closed, because the newest may
belong to an agent that is about to show its token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

STRANGER_SECONDS = 10.0
"""The time for the handshake and the first call."""
SPARE_CONNECTIONS = 256
"""Connections beyond those of the job's members: for queries, probes and Prometheus."""

Peer = tuple[str, int]
Kind = Literal["agent", "caller", "stranger", "hoarder"]
"""An agent with an open stream, another client that has shown a token, a client that has not, or
one whose calls hold too much.
"""


@dataclass(frozen=True)
class Connection:
    """An open connection: the inode of its socket, its client, and when it was found."""

    inode: int
    peer: Peer
    since: float
    kind: Kind


def most_connections(members: int) -> int:
    """Return the limit for connections of strangers, and for those of callers other than agents."""
    return members + SPARE_CONNECTIONS


def connections_to_close(
    connections: Iterable[Connection], *, members: int, now: float
) -> list[Connection]:
    """Return the connections to close now. Those of agents stay: each member has one stream."""
    by_age = sorted(connections, key=lambda connection: connection.since)
    strangers = [each for each in by_age if each.kind == "stranger"]
    late = [each for each in strangers if now - each.since > STRANGER_SECONDS]
    callers = [each for each in by_age if each.kind == "caller"]
    hoarders = [each for each in by_age if each.kind == "hoarder"]
    most = most_connections(members)
    beyond = [*_beyond(strangers[len(late) :], most), *_beyond(callers, most)]
    return [*hoarders, *late, *beyond]


def _beyond(by_age: Sequence[Connection], most: int) -> Sequence[Connection]:
    return by_age[: max(0, len(by_age) - most)]
