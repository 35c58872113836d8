"""Closes connections of strangers to the master's ports, in time and beyond a bound.

gRPC can refuse connections beyond a number, but then it refuses the job's own agents as well, and
it tells of none before there is a call on it. But its sockets are this process' own. So they are
found in /proc, and closed by a shutdown, upon which gRPC, or the HTTP server, gives the connection
up as if the other end had closed it.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import grpc

from elasticjob_master.core.connection_limits import Connection, Kind, Peer, connections_to_close

log = logging.getLogger(__name__)

_SWEEP_SECONDS = 1.0
_SHARE_OF_TIME = 0.02
"""That sweeps may take, at most: one looks at every open file, and with thousands of them comes
less often.
"""

_HANDLERS: Mapping[tuple[bool, bool], Callable[..., Any]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
"""By whether requests are streamed, and answers."""

KindOf = Callable[[Peer], Kind]
Behaviour = Callable[[Any, Any], Awaitable[Any]]


class Callers:
    """The other ends of gRPC connections on which a call has shown a token."""

    def __init__(self) -> None:
        self._callers: dict[str, Peer | None] = {}
        """By what gRPC calls it; None: it has not been parsed yet, as nothing is to be done at each
        call.
        """
        self._streams: dict[str, int] = {}

    def kinds(self) -> KindOf:
        """Return a function that tells who is at the other end, as it is known now."""
        for text in [text for text, peer in self._callers.items() if peer is None]:
            self._callers[text] = peer_of(text)
        callers = set(self._callers.values())
        agents = {self._callers.get(text) for text in self._streams}
        return lambda peer: (
            "agent" if peer in agents else "caller" if peer in callers else "stranger"
        )

    def forget_all_but(self, present: set[Peer]) -> None:
        """Forget whose connections have ended."""
        self._callers = {
            text: peer for text, peer in self._callers.items() if peer is None or peer in present
        }

    def noting(self, handler: Any, *, agents: bool) -> Any:
        """Return a method's handler that notes its callers.

        `agents`: those of its calls that last are agents.
        """
        behave = (
            handler.unary_unary
            or handler.unary_stream
            or handler.stream_unary
            or handler.stream_stream
        )
        make = _HANDLERS[handler.request_streaming, handler.response_streaming]
        noted = self._noting_agent(behave) if agents else self._noting_caller(behave)
        return make(noted, handler.request_deserializer, handler.response_serializer)

    def _noting_caller(self, behave: Behaviour) -> Behaviour:
        async def answer(request: Any, context: Any) -> Any:
            self._callers.setdefault(context.peer())
            return await behave(request, context)

        return answer

    def _noting_agent(self, behave: Behaviour) -> Behaviour:
        async def answer(request: Any, context: Any) -> Any:
            peer = context.peer()
            self._callers.setdefault(peer)
            self._streams[peer] = self._streams.get(peer, 0) + 1
            try:
                return await behave(request, context)
            finally:
                self._streams[peer] -= 1
                if not self._streams[peer]:
                    del self._streams[peer]

        return answer


def peer_of(text: str) -> Peer:
    """Return the other end of a connection, from gRPC's `ipv4:10.0.0.1:80` or `ipv6:%5B::1%5D:80`."""
    address, _, port = unquote(text).partition(":")[2].rpartition(":")
    return normalized(address.strip("[]"), int(port) if port.isdecimal() else 0)


def normalized(address: str, port: int) -> Peer:
    """Return an address and a port, with IPv4 in its own notation."""
    with suppress(ValueError):
        parsed = ipaddress.ip_address(address.partition("%")[0])
        mapped = getattr(parsed, "ipv4_mapped", None)
        return str(mapped or parsed), port
    return address, port


class ConnectionGuard:
    """Looks at the connections to some ports again and again.

    Attributes:
        closed: how many it has closed.
    """

    def __init__(
        self,
        ports: Mapping[int, Callable[[], KindOf]],
        *,
        members: Callable[[], int],
        on_sweep: Callable[[set[Peer]], None] = lambda _present: None,
    ) -> None:
        """Watch over ports.

        Args:
            ports: for each port what returns a function that tells who is at the other end of a connection.
            members: returns how many members the job has, or shall have.
            on_sweep: is called with the other ends of all connections there are.
        """
        self._ports = ports
        self._members = members
        self._since: dict[int, tuple[int, Peer, float] | None] = {}
        """By inode of a socket: its port, other end, and when it was found; None: it is of no
        concern.
        """
        self._on_sweep = on_sweep
        self.closed = 0

    async def run(self) -> None:
        """Sweep as long as the master runs."""
        while True:
            began = time.thread_time()
            self.sweep(time.monotonic())
            await asyncio.sleep(max(_SWEEP_SECONDS, (time.thread_time() - began) / _SHARE_OF_TIME))

    def sweep(self, now: float) -> None:
        """Close what is to be closed now."""
        files = _socket_files()
        self._since = {inode: known for inode, known in self._since.items() if inode in files}
        for inode, file in files.items():
            if inode not in self._since:
                self._since[inode] = self._found(file, now)
        for port, kinds in self._ports.items():
            kind_of = kinds()
            connections = [
                Connection(inode, known[1], known[2], kind)
                for inode, known in self._since.items()
                if known is not None and known[0] == port and (kind := kind_of(known[1])) != "agent"
            ]
            closing = connections_to_close(connections, members=self._members(), now=now)
            for each in closing:
                _shut_down(files[each.inode], each.peer)
            self.closed += len(closing)
        self._on_sweep({known[1] for known in self._since.values() if known is not None})

    def _found(self, file: int, now: float) -> tuple[int, Peer, float] | None:
        with suppress(OSError), socket.socket(fileno=os.dup(file)) as found:
            if (
                found.family in (socket.AF_INET, socket.AF_INET6)
                and found.getsockname()[1] in self._ports
            ):
                address, port = found.getpeername()[:2]
                return found.getsockname()[1], normalized(address, port), now
        return None


def _socket_files() -> dict[int, int]:
    """Return the open sockets of this process: their files by inode."""
    found: dict[int, int] = {}
    with os.scandir("/proc/self/fd") as files:
        for file in files:
            with suppress(OSError):
                link = os.readlink(file.path)  # noqa: PTH115 - there are thousands of them
                if link.startswith("socket:["):
                    found[int(link[8:-1])] = int(file.name)
    return found


def _shut_down(file: int, peer: Peer) -> None:
    """End a connection, unless the file is another one's by now."""
    with suppress(OSError), socket.socket(fileno=os.dup(file)) as found:
        address, port = found.getpeername()[:2]
        if normalized(address, port) == peer:
            found.shutdown(socket.SHUT_RDWR)
