"""Assigns loopback networks, so that tests in parallel processes never listen on the same address.

Masters and agents listen on fixed ports. Each test therefore needs different addresses.
"""

from __future__ import annotations

import errno
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager

_RESERVATION_PORT = 19_999  # below the ports of outgoing connections, and of `free_port`


@contextmanager
def loopback_network() -> Iterator[str]:
    """Reserve a /24 network of 127.0.0.0/8 for the block, and yield its prefix, as `127.4.5`.

    A bound socket on its last address reserves the network. Addresses 1 to 253 are free to use.
    """
    with socket.socket() as reservation:
        yield _reserve(reservation)


def _reserve(reservation: socket.socket) -> str:
    while True:
        # Not `random`: Hypothesis seeds it, and every process would try the same networks. Those of
        # the upper half are for `elasticjob run`, which knows no reservation.
        prefix = f"127.{1 + secrets.randbelow(127)}.{secrets.randbelow(256)}"
        try:
            reservation.bind((f"{prefix}.254", _RESERVATION_PORT))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return prefix
