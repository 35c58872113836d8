"""Runs the agents of a local job on nodes of their own: each in a network namespace.

A bridge connects them with the master's namespace. A node that vanishes loses its link: no packet
gets through, and no connection is closed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from elasticjob_api import names

from tests.support.ipv6_network import own_network
from tests.support.local_job import LocalJob, start_cold

NETWORK = "10.77.0"


class SeparateNodes(LocalJob):
    """A local job whose workers are on different nodes."""

    def __init__(self, folder: Path, workers: int) -> None:
        """Make the nodes, in the network namespace of this thread."""
        super().__init__(folder, NETWORK, start_cold)
        self._nodes = [f"ej-{os.getpid()}-{number}" for number in range(workers)]
        _ip("link add nodes type bridge", "link set nodes up")
        _ip("link set lo up", f"address add {NETWORK}.1/24 dev nodes")
        for number, node in enumerate(self._nodes):
            _ip(
                f"netns add {node}",
                f"link add port{number} type veth peer name eth0 netns {node}",
                f"link set port{number} master nodes up",
                f"-n {node} address add {NETWORK}.{10 + number}/24 dev eth0",
                f"-n {node} link set eth0 up",
                f"-n {node} link set lo up",
            )

    def start_agent(self, index: int, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start the agent of a worker on its node."""
        node = {names.ENV_NODE_NAME: self._nodes[index]}
        return super().start_agent(index, *command, **node, **environment)

    def vanish(self, index: int) -> None:
        """Let nothing of a node get through from now on."""
        _ip(f"link set port{index} down")

    def return_(self, index: int) -> None:
        """Let everything get through again."""
        _ip(f"link set port{index} up")

    def watched(self, index: int) -> list[str]:
        """Return the connections of the agents that watch a worker, as its node sees them."""
        listing = ("ss", "-Htn", "state", "established", f"sport = :{names.AGENT_READY_PORT}")
        on_node = ("ip", "netns", "exec", self._nodes[index])
        done = subprocess.run([*on_node, *listing], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    def _start(
        self, name: str, *command: str, environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        on_node = ("ip", "netns", "exec", environment[names.ENV_NODE_NAME])
        return super()._start(name, *on_node, *command, environment=environment)

    def end(self) -> None:
        """End all processes, and remove the nodes."""
        super().end()
        for node in self._nodes:
            _ip(f"netns delete {node}")


@contextmanager
def separate_nodes(folder: Path, workers: int) -> Iterator[SeparateNodes]:
    """Yield a job on nodes of its own. Skip the test where the user may not make them."""
    with own_network():
        job = SeparateNodes(folder, workers)
        try:
            yield job
        finally:
            job.end()


def _ip(*commands: str) -> None:
    for command in commands:
        done = subprocess.run(["ip", *command.split()], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"ip {command}: {done.stderr.strip()}")
