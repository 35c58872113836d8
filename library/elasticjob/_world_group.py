"""What a session needs of a framework: the groups of processes that communicate in a world."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class Connections:
    """The TCP connections that this process has opened between two moments: those of its group.

    A connection that is shut down ends each collective on it at once, in this process and in the
    other one, also in a thread of C++ that no exception reaches.

    Connections of other processes to the store of this one do not count: they may be those of a
    later world.
    """

    def __init__(self, store_port: int) -> None:
        """Begin: each later connection counts, until `complete`; the port is this process'."""
        self._store_port = store_port
        self._before = _open_sockets()
        self._own: dict[int, str] | None = None
        self._lock = threading.Lock()
        self.cut_off = False
        """The connections were shut down."""

    def complete(self) -> None:
        """Count no later connections: the group is connected."""
        self._own = {
            number: name for number, name in self._present().items() if self._counts(number)
        }

    def broken(self) -> bool:
        """Return whether one of them was shut down, here or by the other process."""
        present = _open_sockets()
        own = self._own or {}
        return self.cut_off or any(
            present.get(number) != name or _has_ended(number) for number, name in own.items()
        )

    def cut(self) -> None:
        """Shut them down, in both directions."""
        self.cut_off = True
        with self._lock:
            for number, name in self._present().items():
                if self._own is None or self._own.get(number) == name:
                    with contextlib.suppress(OSError), _duplicate(number) as connection:
                        # Another thread may have closed it, and opened another one as this number.
                        same = _open_sockets().get(connection.fileno()) == name
                        if same and self._counts(connection.fileno()):
                            connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Shut them down for the last time: a later `cut` must not touch those of a later world."""
        self.cut()
        with self._lock:
            self._own = {}

    def _counts(self, number: int) -> bool:
        """Return whether a socket is an established TCP connection, and not one of the store."""
        try:
            with _duplicate(number) as connection:
                if connection.family not in (socket.AF_INET, socket.AF_INET6):
                    return False
                connection.getpeername()
                return bool(connection.getsockname()[1] != self._store_port)
        except OSError:
            return False

    def _present(self) -> dict[int, str]:
        sockets = _open_sockets().items()
        return {number: name for number, name in sockets if self._before.get(number) != name}


def _open_sockets() -> dict[int, str]:
    """Return the name (the inode) of each socket that this process has open, by its number."""
    found = {}
    for number in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            name = str(number.readlink())
            if name.startswith("socket:"):
                found[int(number.name)] = name
    return found


@contextlib.contextmanager
def _duplicate(number: int) -> Any:
    """Open a socket's duplicate, whose end does not close the socket."""
    with socket.socket(fileno=os.dup(number)) as connection:
        yield connection


def _has_ended(number: int) -> bool:
    """Return whether the other side has closed a connection. It takes nothing from it."""
    try:
        with _duplicate(number) as connection:
            return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


class InterruptedJoin(RuntimeError):
    """The world has ended before all its processes have met."""


@dataclass
class Meeting:
    """A world that its processes join: the place of this one, and its group's connections."""

    round: int
    rank: int
    size: int
    pods: frozenset[str]
    connections: Connections
    formed: bool = False
    """The group works."""
    joined: bool = False
    """The group works, and each process has the newest state."""
    event_loops: frozenset[str] = frozenset()
    """The threads that wait for events when the group begins to work, such as those of Gloo."""
    uses_storage: bool = False
    """This process reads or writes a checkpoint."""


class Group(Protocol):
    """Joins one world after the other, and communicates in the present one.

    Attributes:
        errors: what the framework raises when another process has gone.
    """

    errors: tuple[type[Exception], ...]

    @property
    def notices_ends(self) -> bool:
        """Whether the connections show that another process has ended."""

    def port(self, address: str) -> int:
        """Return the port at which the pod with this address serves as rank 0."""

    def serve(self, address: str) -> None:
        """Let the processes of worlds meet at this one, if that is not done already."""

    def join(self, meeting: Meeting, address: str, interrupted: Callable[[], bool]) -> None:
        """Connect to all processes of a world, of whose rank 0 this is the address.

        Raises RuntimeError if the world has ended, or not all processes have come in time.
        """

    def arrived(self, round_: int) -> int:
        """Return how many processes wait for the others in a world, at this process."""

    def gather(self, mine: Any) -> list[Any]:
        """Return the objects of all ranks."""

    def any_rank(self, mine: bool) -> bool:
        """Return whether it is true in any rank."""

    def broadcast(self, tree: Any, source: int) -> Any:
        """Return the committed state of the source, in all ranks."""

    def part(self, meeting: Meeting) -> None:
        """Wait until all ranks have ended their collectives, or one has gone.

        A connection that is shut down earlier may end a collective of another rank.
        """

    def destroy(self, connections: Connections) -> None:
        """End the present group without waiting for the other processes."""
