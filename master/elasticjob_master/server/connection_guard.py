"""Closes connections of strangers to the gRPC port, after a time and beyond a number.

gRPC can bound the number of connections, but then it refuses the job's own agents as well, and it
reports a connection only after a call on it. So this module finds the sockets of this process in
/proc and shuts them down. For gRPC this looks as if the other end had closed the connection.
"""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from elasticjob_master.core.connection_limits import Connection, Peer, connections_to_close
from elasticjob_master.server.callers import KindOf, normalized

_SWEEP_SECONDS = 1.0
_SHARE_OF_TIME = 0.02
"""The most CPU time that sweeps may use. A sweep reads every open file, so with thousands of files
sweeps become rarer.
"""
_FILES_AT_ONCE = 200


class ConnectionGuard:
    """Watches the connections to a port.

    Attributes:
        closed: the number of connections it has closed.
    """

    def __init__(
        self,
        port: int,
        kinds: Callable[[], KindOf],
        *,
        members: Callable[[], int],
        on_sweep: Callable[[set[Peer]], None] = lambda _present: None,
    ) -> None:
        """Prepare to watch a port, of a job that has or will have this number of members.

        `kinds` returns a function that classifies the port's clients, as of now. `on_sweep` is
        called with the clients of all open connections.
        """
        self._port = port
        self._kinds = kinds
        self._members = members
        self._since: dict[int, tuple[Peer, float] | None] = {}
        """By the socket's inode: its client, and when it was found.

        None marks a socket that is not a connection to the port.
        """
        self._on_sweep = on_sweep
        self.closed = 0

    async def run(self) -> None:
        """Sweep as long as the master runs."""
        while True:
            used = 0.0
            began = time.thread_time()
            for _ in self._sweep(time.monotonic()):
                used += time.thread_time() - began
                await asyncio.sleep(0)
                began = time.thread_time()
            used += time.thread_time() - began
            await asyncio.sleep(max(_SWEEP_SECONDS, used / _SHARE_OF_TIME))

    def _sweep(self, now: float) -> Iterator[None]:
        """Close the connections that must be closed now.

        Yields after some files, so that other work need not wait for thousands. A file may be
        another one meanwhile: its inode is then found in the next sweep, and `_shut_down` looks.
        """
        files: dict[int, int] = {}
        for number, file in enumerate(_open_files(), 1):
            if (inode := _inode_of_socket(file)) is not None:
                files[inode] = file
                if inode not in self._since:
                    self._since[inode] = self._found(file, now)
            if number % _FILES_AT_ONCE == 0:
                yield
        self._since = {inode: known for inode, known in self._since.items() if inode in files}
        kind_of = self._kinds()
        connections = [
            Connection(inode, *known, kind)
            for inode, known in self._since.items()
            if known is not None and (kind := kind_of(known[0])) != "agent"
        ]
        closing = connections_to_close(connections, members=self._members(), now=now)
        for each in closing:
            _shut_down(files[each.inode], each.peer)
        self.closed += len(closing)
        self._on_sweep({known[0] for known in self._since.values() if known is not None})

    def _found(self, file: int, now: float) -> tuple[Peer, float] | None:
        with suppress(OSError), _borrowed(file) as found:
            if (
                found.family in (socket.AF_INET, socket.AF_INET6)
                and found.getsockname()[1] == self._port
            ):
                address, port = found.getpeername()[:2]
                return normalized(address, port), now
        return None


def _inode_of_socket(file: int) -> int | None:
    """Return the inode of a socket; None if the file is closed, or is no socket."""
    with suppress(OSError):
        link = os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115 - thousands of files
        if link.startswith("socket:["):
            return int(link[8:-1])
    return None


def _open_files() -> Iterable[int]:
    """Return the open file descriptors; if no more can be opened, those that are possible."""
    try:
        return [int(file) for file in os.listdir("/proc/self/fd")]  # noqa: PTH208 - as above
    except OSError:
        return range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


@contextmanager
def _borrowed(file: int) -> Iterator[socket.socket]:
    """Yield a file descriptor as a socket, without another descriptor: there may be none left."""
    found = socket.socket(fileno=file)
    try:
        yield found
    finally:
        found.detach()


def _shut_down(file: int, peer: Peer) -> None:
    """Shut a connection down, unless the file descriptor belongs to another one by now."""
    with suppress(OSError), _borrowed(file) as found:
        address, port = found.getpeername()[:2]
        if normalized(address, port) == peer:
            found.shutdown(socket.SHUT_RDWR)
