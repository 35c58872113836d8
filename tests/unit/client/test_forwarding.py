"""Forwarding ends without leaving connections open, at any state of a connection."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticjob_client import forwarding
from elasticjob_client.cluster import Cluster
from elasticjob_client.forwarding import forward
from elasticjob_kube.session import connect

from tests.support.kubeconfig import write_kubeconfig


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of a server that takes connections and answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield write_kubeconfig(
            tmp_path / "kubeconfig", f"http://127.0.0.1:{server.getsockname()[1]}"
        )


@pytest.mark.guarantee("logs-follow-ranks")
@pytest.mark.parametrize("turns", range(8))
async def test_a_connection_ends_with_the_forwarding_however_far_it_has_come(
    silent: Path, turns: int
) -> None:
    loop = asyncio.get_running_loop()
    async with connect(user_agent="elasticjob-tests", kubeconfig=silent) as kube:
        async with forward(Cluster(kube, "default"), "pod", 80) as forwarded:
            host, _, port = forwarded.address.partition(":")
            client = socket.create_connection((host, int(port)))
            for _ in range(turns):
                await asyncio.sleep(0)
            while (
                is_being_accepted()
            ):  # a server that is closed now loses it, until Python is mended (gh-109564)
                await asyncio.sleep(0)
        with client:
            client.setblocking(False)
            try:
                async with asyncio.timeout(5):
                    assert await loop.sock_recv(client, 1) == b""
            except ConnectionResetError:
                pass


@pytest.mark.guarantee("ports-are-guarded")
async def test_connections_beyond_the_bound_are_closed(
    silent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "_MOST", 3)
    async with (
        connect(user_agent="elasticjob-tests", kubeconfig=silent) as kube,
        forward(Cluster(kube, "default"), "pod", 80) as forwarded,
    ):
        host, _, port = forwarded.address.partition(":")
        clients = [await asyncio.open_connection(host, int(port)) for _ in range(4)]
        async with asyncio.timeout(20):
            assert await clients[3][0].read() == b""
        assert not any(reader.at_eof() for reader, _ in clients[:3])
        for _, writer in clients:
            writer.transport.abort()


def is_being_accepted() -> bool:
    """Return whether asyncio has accepted a connection without creating its transport yet."""
    coroutines = [task.get_coro() for task in asyncio.all_tasks()]
    begun = [
        each
        for each in coroutines
        if inspect.iscoroutine(each) and "_accept_connection" in each.__qualname__
    ]
    return any(inspect.getcoroutinestate(each) == inspect.CORO_CREATED for each in begun)
