"""Tells whether a connection of this machine comes from the account that serves it.

A port of 127.0.0.1 is open to all accounts of the machine. What only its owner may read, such as
logs, is refused to the others.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

CONNECTIONS = Path("/proc/net/tcp")
_UID = 7
"""The column of the account that owns a socket."""


def is_own(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """Return whether the client's end of a connection over IPv4 belongs to this account.

    On a system that does not tell, which has no /proc, every client is taken as this account's.
    """
    try:
        lines = CONNECTIONS.read_text().splitlines()[1:]
    except OSError:
        return True
    ends = [_written(*client), _written(*server)]
    owners = [columns[_UID] for columns in map(str.split, lines) if columns[1:3] == ends]
    return owners == [str(os.getuid())]


def _written(host: str, port: int) -> str:
    """Return an address as the kernel writes it: the bytes of the host in the machine's order."""
    [number] = struct.unpack("=I", socket.inet_aton(host))
    return f"{number:08X}:{port:04X}"
