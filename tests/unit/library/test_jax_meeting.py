"""Tests the way of a client to the service of a world, without JAX."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticjob import _jax_meeting
from elasticjob._jax_meeting import Front, Relay, meet
from elasticjob._world_group import Connections, InterruptedJoin, Meeting

from tests.support.wait import wait_until

ROUND = 7
SECONDS = 20.0


@pytest.fixture
def target() -> tuple[str, int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address, port = free.getsockname()
        return address, port


@pytest.fixture
def service(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "service"))
        server.listen()
        server.settimeout(SECONDS)
        yield server


def meeting(rank: int) -> Meeting:
    return Meeting(ROUND, rank, 2, frozenset(), Connections(0))


def client_of(relay: Relay) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(SECONDS)
    client.connect(str(relay.path))
    return client


def test_processes_wait_for_the_last_of_their_world(target: tuple[str, int]) -> None:
    front = Front(*target)
    met: list[int] = []

    def join(rank: int) -> None:
        meet(meeting(rank), target, lambda: False, timeout=SECONDS)
        met.append(rank)

    first = threading.Thread(target=join, args=(1,))
    first.start()
    wait_until("one process waits", lambda: front.arrived(ROUND) == 1, seconds=SECONDS)
    assert met == []
    join(0)
    first.join()
    assert sorted(met) == [0, 1]
    wait_until("no process waits", lambda: front.arrived(ROUND) == 0, seconds=SECONDS)


@pytest.mark.guarantee("ports-are-guarded")
def test_strangers_at_the_port_of_rank_0_keep_no_process_from_meeting(
    target: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_jax_meeting, "_MOST_STRANGERS", 4)
    monkeypatch.setattr(_jax_meeting, "_GREETING_SECONDS", SECONDS)
    Front(*target)
    strangers = [socket.create_connection(target, SECONDS) for _ in range(9)]
    for stranger in strangers[:5]:
        assert stranger.recv(1) == b"", "the oldest ones are closed"
    others = [threading.Thread(target=_meets, args=(target, rank)) for rank in (0, 1)]
    for each in others:
        each.start()
    for each in others:
        each.join(SECONDS)
        assert not each.is_alive()
    for stranger in strangers:
        stranger.close()


@pytest.mark.guarantee("ports-are-guarded")
def test_a_stranger_that_sends_byte_by_byte_has_as_little_time_as_a_silent_one(
    target: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_jax_meeting, "_GREETING_SECONDS", 0.3)
    Front(*target)
    with socket.create_connection(target, 0.02) as stranger:

        def is_closed() -> bool:
            try:
                stranger.sendall(b"h")
                return stranger.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        wait_until("it is closed", is_closed, seconds=SECONDS)


def _meets(target: tuple[str, int], rank: int) -> None:
    meet(meeting(rank), target, lambda: False, timeout=SECONDS)


def test_a_process_that_gives_up_does_not_count(target: tuple[str, int]) -> None:
    front = Front(*target)
    with pytest.raises(InterruptedJoin):
        meet(meeting(1), target, lambda: front.arrived(ROUND) == 1, timeout=SECONDS)
    wait_until("no process waits", lambda: front.arrived(ROUND) == 0, seconds=SECONDS)
    with pytest.raises(TimeoutError, match="not all 2 processes"):
        meet(meeting(0), target, lambda: False, timeout=0)


@pytest.mark.guarantee("jax-worlds")
def test_a_client_does_not_hear_of_the_end_of_the_service(
    target: tuple[str, int], service: socket.socket, tmp_path: Path
) -> None:
    front = Front(*target)
    front.open(ROUND, tmp_path / "service")
    relay = Relay(tmp_path / "relay", target, ROUND)
    with client_of(relay) as client:
        client.sendall(b"question")
        served, _ = service.accept()
        with served:
            served.settimeout(SECONDS)
            assert served.recv(100) == b"question"
            served.sendall(b"answer")
            assert client.recv(100) == b"answer"
            front.close()
            assert served.recv(100) == b"", "the service hears of the end"
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(1)
        relay.close()
        client.settimeout(SECONDS)
        assert client.recv(1) == b""


def test_a_client_of_another_world_is_not_connected(
    target: tuple[str, int], service: socket.socket, tmp_path: Path
) -> None:
    front = Front(*target)
    front.open(ROUND, tmp_path / "service")
    with socket.create_connection(target, SECONDS) as late:
        late.sendall(b"data %d\n" % (ROUND - 1))
        assert late.recv(1) == b""
    for nonsense in (b"data x\n", b"\n", b"here\n", b"x" * 100):
        with socket.create_connection(target, SECONDS) as strange:
            strange.sendall(nonsense)
            try:
                assert strange.recv(1) == b""
            except ConnectionResetError:
                continue  # what it sent was not read
