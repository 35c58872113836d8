"""Bounds the connections of strangers, and the memory of open gRPC calls.

A client is a stranger until a call on its connection has shown a token. Strangers have little time
for that. If there are too many of them, the oldest connections are closed, because the newest may
belong to an agent that is about to show its token.

A client decides how long a call is open: it may ask for a value that is never set, or not read its
answer. So the calls of each kind of client have a bound in total. When it is reached, every
connection still has its share, and a connection that holds more is refused. The connections of
clients other than agents are then closed, beginning with the oldest call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from elasticjob_api.refusals import LimitReached

STRANGER_SECONDS = 10.0
"""The time for the handshake and the first call."""
SPARE_CONNECTIONS = 256
"""Connections beyond those of the job's members: for queries, probes and Prometheus."""

Peer = tuple[str, int]
Kind = Literal["agent", "caller", "stranger", "hoarder"]
"""An agent with an open stream, another client that has shown a token, a client that has not, or
one whose calls hold too much.
"""
Holder = Literal["agent", "caller", "reader", "stranger"]
"""An agent with an open stream, another client with the job's token, a client with the read-only
token, or a client without a token.
"""

CALL_BYTES = 24 * 1024
"""What gRPC and asyncio keep for an open call (measured)."""
REQUEST_COPIES = 3
"""A request exists as bytes, as a message, and as the values taken from it (measured)."""
SHARE_CALLS = 2
"""Each connection may have this number of small calls, however large the job is."""

_MEBIBYTE = 1024 * 1024
_MOST: Mapping[Holder, tuple[int, int]] = {
    "agent": (128 * _MEBIBYTE, 32 * 1024),
    "caller": (64 * _MEBIBYTE, 16 * 1024),
    "reader": (64 * _MEBIBYTE, 0),
    "stranger": (16 * _MEBIBYTE, 0),
}
"""The bytes that the calls of all clients of a kind may hold, and those for each member more."""
_NAMES: Mapping[Holder, str] = {
    "agent": "agents",
    "caller": "clients with the job's token",
    "reader": "clients with the read-only token",
    "stranger": "clients without a token",
}


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


@dataclass(eq=False)
class Call:
    """An open call, and the bytes that it holds."""

    holder: Holder
    connection: str
    size: int


class HeldCalls:
    """The open calls of one server."""

    def __init__(self, members: Callable[[], int]) -> None:
        self._members = members
        self._calls: dict[Call, None] = {}
        """In the order of their beginning."""
        self._by_holder: dict[Holder, int] = dict.fromkeys(_MOST, 0)
        self._by_connection: dict[str, int] = {}
        self._full: set[Holder] = set()

    def begin(self, holder: Holder, connection: str) -> Call:
        """Note an open call. It counts until `end`, even if it is refused."""
        call = Call(holder, connection, 0)
        self._calls[call] = None
        self._add(call, CALL_BYTES)
        return call

    def hold(self, call: Call, size: int) -> None:
        """Let a call hold more bytes. Raises `LimitReached`, and then it does not."""
        if call not in self._calls:
            return
        total = self._by_holder[call.holder] + size
        own = self._by_connection[call.connection] + size
        most = self.most(call.holder)
        share = self.share(call.holder)
        if total > most and own > share:
            self._full.add(call.holder)
            raise LimitReached(
                f"the open calls of {_NAMES[call.holder]} would hold {total} bytes of at most "
                f"{most}, those of this connection {own}; then each connection may hold {share}: "
                "read the answers, and make fewer calls at a time"
            )
        self._add(call, size)

    def release(self, call: Call, size: int) -> None:
        """Let a call hold fewer bytes."""
        if call in self._calls:
            self._add(call, -size)

    def end(self, call: Call) -> None:
        """Count a call no longer."""
        if call not in self._calls:
            return
        self._add(call, -call.size)
        del self._calls[call]
        if not self._by_connection[call.connection]:
            del self._by_connection[call.connection]

    def total(self, holder: Holder) -> int:
        """Return the bytes that the calls of a kind of client hold."""
        return self._by_holder[holder]

    def most(self, holder: Holder) -> int:
        """Return the bytes that the calls of a kind of client may hold."""
        spare, each = _MOST[holder]
        return spare + each * self._members()

    def share(self, holder: Holder) -> int:
        """Return the bytes that the calls of each connection may hold in any case."""
        return self.most(holder) // most_connections(self._members()) + SHARE_CALLS * CALL_BYTES

    def connections_to_close(self) -> set[str]:
        """Return the connections to close, if calls have been refused since the last time.

        Those with the oldest calls lose, until half of the bytes are free. A connection that holds
        no more than its share stays, and so does that of an agent.
        """
        closing: set[str] = set()
        for holder in self._full - {"agent"}:
            total = self._by_holder[holder]
            for call in self._calls:
                if total <= self.most(holder) // 2:
                    break
                held = self._by_connection[call.connection]
                if call.holder == holder and held > self.share(holder):
                    total -= 0 if call.connection in closing else held
                    closing.add(call.connection)
        self._full.clear()
        return closing

    def _add(self, call: Call, size: int) -> None:
        call.size += size
        self._by_holder[call.holder] += size
        self._by_connection[call.connection] = self._by_connection.get(call.connection, 0) + size
