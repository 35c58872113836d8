"""Tests that exactly the connections of one process group are shut down."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from elasticjob._world_group import Connections
from elasticjob_api.frameworks import pytorch

STORE_PORT = pytorch.PORT
"""Of the store, which no test opens."""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@contextlib.contextmanager
def connected(listener: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_connection(listener.getsockname()) as client:
        server, _ = listener.accept()
        with server:
            yield client, server


def works(pair: tuple[socket.socket, socket.socket]) -> bool:
    near, far = pair
    try:
        near.sendall(b"x")
        far.settimeout(10)
        return far.recv(1) == b"x"
    except OSError:
        return False


def test_connections_before_and_after_the_groups_own_are_left_alone(
    listener: socket.socket,
) -> None:
    with connected(listener) as earlier:
        connections = Connections(STORE_PORT)
        with connected(listener) as own:
            connections.complete()
            with connected(listener) as later:
                assert not connections.broken()
                connections.cut()
                assert connections.broken()
                assert (works(earlier), works(own), works(later)) == (True, False, True)


@pytest.mark.guarantee("pytorch-worlds")
def test_a_late_cut_of_a_world_does_not_touch_the_connections_of_the_next(
    listener: socket.socket,
) -> None:
    connections = Connections(STORE_PORT)
    with connected(listener) as incomplete:
        connections.close()
        assert not works(incomplete)
    with connected(listener) as next_world:
        connections.cut()
        assert works(next_world)


def test_a_group_is_broken_when_the_other_process_has_closed_a_connection(
    listener: socket.socket,
) -> None:
    connections = Connections(STORE_PORT)
    near = socket.create_connection(listener.getsockname())
    far, _ = listener.accept()
    with near:
        connections.complete()
        assert not connections.broken()
        far.sendall(b"unread")
        assert not connections.broken()
        far.close()
        near.recv(100)
        assert connections.broken()


def test_neither_listening_sockets_nor_connections_to_the_own_store_are_shut_down() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as store,
        socket.create_connection(store.getsockname()) as process,
    ):
        connections = Connections(store.getsockname()[1])
        accepted, _ = store.accept()
        with accepted:
            connections._own = {accepted.fileno(): "", store.fileno(): ""}
            assert not connections._counts(accepted.fileno())
            assert not connections._counts(store.fileno())
            assert connections._counts(process.fileno())
