"""Tests that a process vanishes from a real network, and returns to it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from socket import create_connection

import pytest

from tests.support.chaos.packet_filter import packet_filter
from tests.support.ipv6_network import own_network

ECHO = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
while data := connection.recv(100):
    connection.send(data)
"""


@pytest.mark.guarantee("random-faults")
def test_nothing_of_a_vanished_process_gets_through_until_it_returns(tmp_path: Path) -> None:
    with own_network():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        packets = packet_filter(tmp_path)
        if packets is None:
            pytest.skip("needs root, nft and net_cls")
        with subprocess.Popen([sys.executable, "-c", ECHO], stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout
                port = int(process.stdout.readline())
                with create_connection(("127.0.0.1", port), 20) as connection:
                    connection.send(b"1")
                    assert connection.recv(1) == b"1"
                    group = packets.drop([process.pid])
                    connection.send(b"2")
                    connection.settimeout(0.5)
                    with pytest.raises(TimeoutError):
                        connection.recv(1)
                    packets.restore(group)
                    connection.settimeout(20)
                    assert connection.recv(1) == b"2"
            finally:
                process.kill()
                packets.close()
    assert not any(tmp_path.iterdir())
