"""The watch of other members: what is reported, and what is not."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
from collections.abc import Coroutine, Iterator

import pytest
from elasticjob_agent import watched_peers
from elasticjob_agent.readiness import Readiness
from elasticjob_agent.watched_peers import WatchedPeers
from elasticjob_api.v1 import agent_pb2 as pb

from tests.support.ipv6_network import own_network
from tests.support.wait import SECONDS

NOBODY = "10.1.1.2"


@pytest.fixture
def silent_network() -> Iterator[str]:
    """Use a network in which nobody answers; return the address of one that does."""
    with own_network():
        for command in ("link set lo up", "link add silent type bridge", "link set silent up"):
            subprocess.run(["ip", *command.split()], check=True)
        subprocess.run(["ip", "address", "add", "10.1.1.1/24", "dev", "silent"], check=True)
        yield "10.1.1.1"


class Peers(WatchedPeers):
    """The watch of an agent, whose messages are kept."""

    def __init__(self) -> None:
        self.sent: list[pb.AgentMessage] = []
        self.tasks: list[asyncio.Task[None]] = []
        super().__init__("token", self.begin, self.sent.append)

    def begin(self, _: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.append(task)
        return task


async def test_a_probe_names_the_nodes_that_do_not_answer(silent_network: str) -> None:
    refusing = "127.0.0.9"  # its kernel answers that nobody listens there
    readiness = Readiness(silent_network, "token")
    await readiness.announce()
    peers = Peers()
    await peers.probe(pb.Probe(number=7, addresses=[silent_network, NOBODY, refusing]))
    readiness.close()
    assert peers.sent == [pb.AgentMessage(probed=pb.Probed(number=7, unreached=[NOBODY]))]


async def hold(_: WatchedPeers, link: socket.socket) -> None:
    """Return when the node does not answer any more, as here at once."""
    link.close()


class Script:
    """What happens to the connects of one watch, one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *steps: str) -> None:
        self.steps = list(steps)
        self.ended = asyncio.Event()
        monkeypatch.setattr(watched_peers, "_connect", self.connect)
        monkeypatch.setattr(watched_peers, "_answers", self.answers)
        monkeypatch.setattr(WatchedPeers, "_hold", hold)
        monkeypatch.setattr(watched_peers, "RECONNECT_SECONDS", 0.0)

    async def next(self) -> str:
        if not self.steps:
            self.ended.set()
            await asyncio.Event().wait()
        return self.steps.pop(0)

    async def connect(self, *_: object) -> socket.socket | None:
        step = await self.next()
        if step == "refused":
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        return socket.socket() if step == "connected" else None

    async def answers(self, *_: object) -> bool:
        return await self.next() == "answers"


@pytest.mark.parametrize(
    ("steps", "reports"),
    [
        (["silent", "silent"] * 3, 0),  # it was never reached, as a policy forbids it
        (["refused", "silent", "silent"], 0),
        (["connected", "silent"], 1),
        (["connected", "answers"], 0),  # one failed connect is none
        (["connected", "silent", "silent", "silent"], 2),  # repeated
        (["connected", "answers", "refused", "connected", "silent"], 1),
    ],
)
async def test_a_node_is_reported_when_it_was_reached_and_fails_twice(
    monkeypatch: pytest.MonkeyPatch, steps: list[str], reports: int
) -> None:
    script = Script(monkeypatch, *steps)
    peers = Peers()
    peers.watch(["10.0.0.1"])
    async with asyncio.timeout(SECONDS):
        await script.ended.wait()
    assert [message.unreached.address for message in peers.sent] == ["10.0.0.1"] * reports
    peers.watch([])
    async with asyncio.timeout(SECONDS):
        await asyncio.wait(peers.tasks)
