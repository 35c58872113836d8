"""Finds the TCP connections of a process group among those of this process, and shuts them down.

A connection that is shut down ends each collective on it at once, in this process and in the other
one, also in a thread of C++ that no exception reaches.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path
from typing import Any


class Connections:
    """The TCP connections that this process has opened between two moments: those of its group.

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
