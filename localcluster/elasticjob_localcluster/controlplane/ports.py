"""Finds free ports on the loopback address."""

from __future__ import annotations

import errno
import random
import socket

import psutil

from elasticjob_localcluster.errors import LocalClusterError

# Below the kernel's range for outgoing connections, so that no client takes a port meanwhile.
_CHOICE = range(20_000, 32_000)


def free_port() -> int:
    """Return a random free port: clusters that start concurrently choose different ones."""
    for port in random.sample(_CHOICE, 100):
        if _bind_error(port) is None:
            return port
    raise LocalClusterError(
        "found no free port between 20000 and 31999 in 100 attempts: name one with --port"
    )


def check_port(port: int) -> None:
    """Raise an error if a port is in use, with the process that uses it if that is known."""
    error = _bind_error(port)
    if error is None:
        return
    if error.errno == errno.EADDRINUSE:
        raise LocalClusterError(
            f"port {port} is in use{_holder(port)}: choose another with --port, or leave it out"
        )
    raise LocalClusterError(
        f"cannot listen on port {port}: {error.strerror}; "
        "choose another with --port, or leave it out"
    )


def _bind_error(port: int) -> OSError | None:
    with socket.socket() as listener:
        # As the API server does: closing connections of an earlier run do not matter.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen()
        except OSError as error:
            return error
    return None


def _holder(port: int) -> str:
    try:
        for connection in psutil.net_connections(kind="tcp"):
            # (address, port), or nothing at all
            listens = connection.status == psutil.CONN_LISTEN and tuple(connection.laddr)[1:] == (
                port,
            )
            if listens and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (process {connection.pid})"
    except psutil.Error:
        pass  # it has ended, or belongs to another user
    return ""
