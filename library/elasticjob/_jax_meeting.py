"""Lets the processes of a world meet at rank 0, and connects them to JAX's coordination service.

JAX ends a process as soon as it hears of an error of the service, such as its end. So no process
connects to it directly: each connects to a relay in itself, which falls silent instead when the
process of rank 0 has gone or the world ends. The service of a world listens on a Unix socket of
rank 0, behind a port that outlives the world.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from elasticjob._world_group import InterruptedJoin, Meeting

_GREETING_BYTES = 64
_GREETING_SECONDS = 10.0
_MOST_STRANGERS = 256
"""Connections without a greeting; the oldest one makes room for the next."""
_SERVICE_SECONDS = 30.0
_CONNECT_SECONDS = 2.0
_POLL_SECONDS = 0.01
_CHUNK_BYTES = 1 << 16
_GO = b"."


class Front:
    """The port of rank 0. A connection begins with a line: `here ROUND SIZE`, or `data ROUND`.

    The first kind waits until all processes of the world are there. The second kind is relayed to
    the service of the present world.
    """

    def __init__(self, address: str, port: int) -> None:
        """Listen until the process ends."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._server = socket.create_server((address, port), family=family, backlog=1024)
        self._lock = threading.Lock()
        self._waiting: dict[int, set[socket.socket]] = {}
        self._relayed: set[socket.socket] = set()
        self._strangers: dict[socket.socket, None] = {}
        self._round = 0
        self._service = Path()
        _start(self._accept)

    def open(self, round_: int, service: Path) -> None:
        """Relay the connections of a world to the service at this Unix socket."""
        with self._lock:
            self._round = round_
            self._service = service

    def close(self) -> None:
        """End the connections to the present service, before it ends."""
        with self._lock:
            self._round = 0
            for connection in self._relayed:
                _shut_down(connection)

    def arrived(self, round_: int) -> int:
        """Return how many processes wait for the others in a world."""
        with self._lock:
            return len(self._waiting.get(round_, ()))

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # the process can open no file now
                time.sleep(_POLL_SECONDS)
                continue
            with self._lock:
                self._strangers[connection] = None
                oldest = next(iter(self._strangers))
                if len(self._strangers) > _MOST_STRANGERS:
                    del self._strangers[oldest]
                    _shut_down(oldest)
            try:
                _start(self._serve, connection)
            except RuntimeError:  # the process can start no thread now
                self._greeted(connection)
                connection.close()

    def _greeted(self, connection: socket.socket) -> None:
        with self._lock:
            self._strangers.pop(connection, None)

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError):
            try:
                kind, *numbers = _read_line(connection).split()
            finally:
                self._greeted(connection)
            connection.settimeout(None)
            if kind == b"here" and len(numbers) == 2:
                self._wait(connection, int(numbers[0]), int(numbers[1]))
            elif kind == b"data" and len(numbers) == 1:
                self._relay(connection, int(numbers[0]))

    def _wait(self, connection: socket.socket, round_: int, size: int) -> None:
        with self._lock:
            waiting = self._waiting.setdefault(round_, set())
            waiting.add(connection)
            if len(waiting) >= size:
                for each in waiting:
                    with contextlib.suppress(OSError):
                        each.sendall(_GO)
        with contextlib.suppress(OSError):
            connection.recv(1)  # the process closes it when it need not wait any more
        with self._lock:
            waiting.discard(connection)
            if not waiting and self._waiting.get(round_) is waiting:
                del self._waiting[round_]

    def _relay(self, connection: socket.socket, round_: int) -> None:
        with self._lock:
            if round_ != self._round:
                return
            self._relayed.add(connection)
            path = self._service
        try:
            with socket.socket(socket.AF_UNIX) as service:
                if _connect_to_service(service, path):
                    backward = _start(_copy, service, connection)
                    _copy(connection, service)
                    _shut_down(service)  # which ends the other direction
                    backward.join()
        finally:
            with self._lock:
                self._relayed.discard(connection)


class Relay:
    """Relays the connections of this process' client to the service of a world."""

    def __init__(self, path: Path, target: tuple[str, int], round_: int) -> None:
        """Listen on a Unix socket at a path, for the service behind the target."""
        self.path = path
        self._target = target
        self._round = round_
        self._lock = threading.Lock()
        self._silent = False
        self._sockets: list[socket.socket] = []
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        _start(self._accept)

    def fall_silent(self) -> None:
        """Relay nothing any more, while the client's connections remain open."""
        with self._lock:
            self._silent = True
            for each in self._sockets:
                if each.family != socket.AF_UNIX:
                    _shut_down(each)

    def close(self) -> None:
        """End, after the client."""
        self.fall_silent()
        with self._lock:
            _shut_down(self._server)
            for each in (self._server, *self._sockets):
                _shut_down(each)
                each.close()
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                if self._keeps(client):
                    _start(self._relay, client)

    def _relay(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            service = socket.create_connection(self._target, _CONNECT_SECONDS)
            service.settimeout(None)
            if not self._keeps(service):
                service.close()
                return
            service.sendall(b"data %d\n" % self._round)
            _start(_copy, service, client)  # the client does not hear of its end
            _copy(client, service)
            _shut_down(service)

    def _keeps(self, connection: socket.socket) -> bool:
        """Keep a connection until the end; return whether anything is relayed still."""
        with self._lock:
            self._sockets.append(connection)
            return not self._silent


def meet(
    meeting: Meeting,
    target: tuple[str, int],
    interrupted: Callable[[], bool],
    *,
    timeout: float,
) -> None:
    """Wait at rank 0 until all processes of a world are there.

    Raises RuntimeError if the world has ended, or not all processes have come in time.
    """
    deadline = time.monotonic() + timeout
    while True:
        with contextlib.suppress(OSError):
            if _met(meeting, target, interrupted, deadline):
                return
        if interrupted():
            raise InterruptedJoin(f"the world of round {meeting.round} has ended")
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"not all {meeting.size} processes have called worlds() in the world of round "
                f"{meeting.round} within {timeout:g} s"
            )
        time.sleep(_POLL_SECONDS)


def _met(
    meeting: Meeting, target: tuple[str, int], interrupted: Callable[[], bool], deadline: float
) -> bool:
    with socket.create_connection(target, _CONNECT_SECONDS) as connection:
        connection.sendall(b"here %d %d\n" % (meeting.round, meeting.size))
        connection.settimeout(_POLL_SECONDS)
        while not interrupted() and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                return connection.recv(1) == _GO
    return False


def _connect_to_service(service: socket.socket, path: Path) -> bool:
    """Connect to the service, which begins to listen after the processes have met."""
    deadline = time.monotonic() + _SERVICE_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            service.connect(str(path))
            return True
        time.sleep(_POLL_SECONDS)
    return False


def _read_line(connection: socket.socket) -> bytes:
    line = b""
    deadline = time.monotonic() + _GREETING_SECONDS
    while not line.endswith(b"\n") and len(line) < _GREETING_BYTES:
        connection.settimeout(max(deadline - time.monotonic(), _POLL_SECONDS))
        byte = connection.recv(1)
        if not byte:
            break
        line += byte
    return line


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            sink.sendall(data)


def _shut_down(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _start(run: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=run, args=arguments, name="elasticjob-jax", daemon=True)
    thread.start()
    return thread
