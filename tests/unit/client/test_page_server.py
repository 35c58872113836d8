"""Tests that connections of other accounts of the machine are recognized."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from elasticjob_client import page_server
from elasticjob_client.page_server import is_own


@pytest.fixture
def ends() -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """Return the two addresses of a connection over 127.0.0.1: the client's and the server's."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        yield client.getsockname(), server.getsockname()


@pytest.mark.guarantee("local-dashboard")
def test_only_a_connection_of_this_account_is_its_own(
    ends: tuple[tuple[str, int], tuple[str, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, server = ends
    assert is_own(client, server)
    assert not is_own(server, server), "there is no such connection"
    text = page_server.CONNECTIONS.read_text()
    pattern = rf"^(\s*\d+: {_hex(client)} {_hex(server)}(?:\s+\S+){{4}}\s+){os.getuid()} "
    changed = re.sub(pattern, rf"\g<1>{os.getuid() + 1} ", text, flags=re.MULTILINE)
    assert changed != text
    others = tmp_path / "tcp"
    others.write_text(changed)
    monkeypatch.setattr(page_server, "CONNECTIONS", others)
    assert not is_own(client, server)


def test_a_system_that_does_not_tell_admits_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "CONNECTIONS", tmp_path / "none")
    assert is_own(("127.0.0.1", 1), ("127.0.0.1", 2))


def _hex(address: tuple[str, int]) -> str:
    return f"[0-9A-F]{{8}}:{address[1]:04X}"
