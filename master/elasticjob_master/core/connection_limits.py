"""Which connections to a port are closed, so that strangers take bounded memory and keep nobody out.

A connection is a stranger's until a call on it has shown a token. Strangers have little time. Of
too many, the oldest are closed: the newest one may be an agent that is about to show its token.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

STRANGER_SECONDS = 10.0
"""For the handshake and the first call."""
SPARE_CONNECTIONS = 256
"""Beyond those of the job's members: for queries, probes and Prometheus."""

Peer = tuple[str, int]
Kind = Literal["agent", "caller", "stranger"]
"""At the other end: an agent with its stream, another one who has shown a token, or nobody knows
who.
"""


@dataclass(frozen=True)
class Connection:
    """An open connection.

    Its socket's number in the kernel, the other end, and since when it has been known.
    """

    inode: int
    peer: Peer
    since: float
    kind: Kind


def most_connections(members: int) -> int:
    """Return how many connections there may be of strangers, and of callers that are no agents, in so large a job."""
    return members + SPARE_CONNECTIONS


def connections_to_close(
    connections: Iterable[Connection], *, members: int, now: float
) -> list[Connection]:
    """Return the connections to close now.

    Those of agents are not asked for: a member has one stream.
    """
    by_age = sorted(connections, key=lambda connection: connection.since)
    strangers = [each for each in by_age if each.kind == "stranger"]
    late = [each for each in strangers if now - each.since > STRANGER_SECONDS]
    callers = [each for each in by_age if each.kind == "caller"]
    most = most_connections(members)
    return [*late, *_beyond(strangers[len(late) :], most), *_beyond(callers, most)]


def _beyond(by_age: Sequence[Connection], most: int) -> Sequence[Connection]:
    return by_age[: max(0, len(by_age) - most)]
