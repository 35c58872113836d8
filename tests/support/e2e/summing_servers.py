"""Runs parameter servers that sum, and workers that add to each of them.

They find each other by lists of addresses. Usage: `summing_servers.py --job_name=ps|worker
--task_index=N --ps_hosts=HOST:PORT,... --worker_hosts=... FOLDER`. Worker N adds N + 1, waits until
every server has the sum of all workers, and writes it to the file FOLDER/worker-N. Standard library
only.
"""

from __future__ import annotations

import argparse
import socket
import socketserver
import threading
import time
from pathlib import Path


class Sum(socketserver.ThreadingTCPServer):
    """Adds each worker's number once, and answers with the sum."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, Adder)
        self.lock = threading.Lock()
        self.numbers: dict[int, int] = {}


class Adder(socketserver.StreamRequestHandler):
    """One message: a worker's index and its number."""

    def handle(self) -> None:
        index, number = map(int, self.rfile.readline().split())
        assert isinstance(self.server, Sum)
        with self.server.lock:
            self.server.numbers[index] = number
            total = sum(self.server.numbers.values())
        self.wfile.write(b"%d\n" % total)


def add(address: tuple[str, int], index: int, number: int) -> int:
    """Send a number and return the server's sum; 0 while the server does not run."""
    try:
        with socket.create_connection(address, timeout=5) as connection:
            connection.sendall(b"%d %d\n" % (index, number))
            return int(connection.makefile().readline() or 0)
    except OSError:
        return 0


def main() -> None:
    """Run one server or one worker."""
    parser = argparse.ArgumentParser()
    for name in ("--job_name", "--ps_hosts", "--worker_hosts"):
        parser.add_argument(name, required=True)
    parser.add_argument("--task_index", type=int, required=True)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    servers = [
        (host, int(port))
        for host, port in (each.rsplit(":", 1) for each in asked.ps_hosts.split(","))
    ]
    if asked.job_name == "ps":
        Sum(servers[asked.task_index]).serve_forever()
    workers = len(asked.worker_hosts.split(","))
    goal = sum(range(1, workers + 1))
    while {add(server, asked.task_index, asked.task_index + 1) for server in servers} != {goal}:
        time.sleep(0.05)
    (asked.folder / f"worker-{asked.task_index}").write_text(f"{goal} of {len(servers)}")


if __name__ == "__main__":
    main()
