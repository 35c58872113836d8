"""Runs members of one world in threads of a process, with real agents' sides for their checkpoints.

The master's values are its real store with its bounds, the connections between training process and
agent are calls, and the agents' connections to each other are those of a job.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from elasticjob import _state
from elasticjob._agent_connection import AgentConnection, AgentError
from elasticjob._state import StateInMemory
from elasticjob._state_folder import StateFolder
from elasticjob.world import Member, World
from elasticjob_agent import config
from elasticjob_agent.proxy.master_call import CallError
from elasticjob_agent.proxy.shards import Caller
from elasticjob_agent.state import peers
from elasticjob_agent.state.calls import StateCalls
from elasticjob_api import names
from elasticjob_api.refusals import LimitReached
from elasticjob_api.v1 import agent_pb2, state_pb2
from elasticjob_master.core.sync.key_value import KeyValueStore

from tests.support.agent_process import agent_environment
from tests.support.master_process import certificates, peer_identity

STORE = "0123456789abcdef"
CHECKPOINT = f"checkpoint-0000-{1:010}-{10:012}-{1:06}"
ROUND = 2
ROOM = 1 << 26
SECONDS = 120


class Values:
    """The master's values, in the form of the library's `KeyValue`."""

    def __init__(self) -> None:
        self.store = KeyValueStore()
        self._changed = threading.Condition()

    def set(self, key: str, value: bytes) -> None:
        """Set a value within the master's bounds."""
        with self._changed:
            try:
                self.store.set(key, value)
            except LimitReached as error:
                raise AgentError(str(error)) from error
            self._changed.notify_all()

    def wait(self, *keys: str, timeout: float | None = None) -> list[bytes]:
        """Wait for values."""
        with self._changed:
            seconds = SECONDS if timeout is None else timeout
            if not self._changed.wait_for(lambda: self.store.first_missing(keys) is None, seconds):
                raise TimeoutError("no value")
            return self.store.get_all(keys)


class Connection:
    """A training process's connection to an agent of this process."""

    leaving = False

    def __init__(self, agent: StateCalls, loop: asyncio.AbstractEventLoop) -> None:
        self._agent = agent
        self._loop = loop
        self.address: str | None = ""
        """What the agent says instead of its address, unless it is empty."""

    def call(self, call: str, **fields: Any) -> Future[dict[str, Any]]:
        """Call the agent in its thread."""
        return asyncio.run_coroutine_threadsafe(self._answer(call, fields), self._loop)

    async def _answer(self, call: str, fields: dict[str, Any]) -> dict[str, Any]:
        caller = Caller(ROUND, agent_pb2.World(round=ROUND))
        try:
            answer: dict[str, Any] = await self._agent.handlers[call](fields, caller)
        except CallError as error:
            raise AgentError(str(error)) from error
        if call == "state_folder" and self.address != "":
            return {**answer, "address": self.address}
        return answer


class Members:
    """The members of a world, each with a process and a folder.

    Attributes:
        agents: the state sides of their agents.
        connections: their processes' connections to these.
        served: the fetches that each agent was asked for.
        votes: whether each member could not fetch all.
    """

    def __init__(self, root: Path, count: int) -> None:
        self.root = root
        self.count = count
        self.agents: list[StateCalls] = []
        self.connections: list[Connection] = []
        self.values = Values()
        self.served: Counter[str] = Counter()
        self.votes: list[bool] = []
        self._meet = threading.Barrier(count)

    async def open(self, rooms: dict[int, int]) -> None:
        """Start the agents; `rooms` has the sizes of folders that are not the usual one."""
        for position in range(self.count):
            (self.root / str(position)).mkdir()
            environment = {
                names.ENV_TOKEN: "token",
                names.ENV_CA: certificates()[0],
                names.ENV_PEER_IDENTITY: peer_identity(),
                names.ENV_STATE_FOLDER: str(self.root / str(position)),
                names.ENV_STATE_BYTES: str(rooms.get(position, ROOM)),
            }
            agent = StateCalls(config.load(agent_environment(environment, master="127.0.0.1")))
            await agent.open()
            self.agents.append(agent)
            self.connections.append(Connection(agent, asyncio.get_running_loop()))

    def folder(self, position: int) -> StateFolder:
        """Return a member's folder."""
        return StateFolder(self.root / str(position), STORE, most_bytes=ROOM)

    def save(self, model: bytes) -> None:
        """Save a checkpoint as rank 0 of an earlier world, with a copy at the next member."""
        for position in range(self.count):
            folder = self.folder(position)
            for part in {position, (position - 1) % self.count}:
                path = folder.begin(CHECKPOINT, part)
                if part == 0:
                    (path / "model").write_bytes(model)
                folder.finish(CHECKPOINT, part, parts=self.count)
            folder.complete(CHECKPOINT)

    async def begin(self, chosen: Callable[[], object] = lambda: None) -> list[str]:
        """Begin a world, and return the checkpoints that its members have found.

        `chosen` is called between the members' inventories and what follows from them.
        """

        def find_stored(_known: object) -> tuple[int, str]:
            chosen()
            return 0, ""

        loop = asyncio.get_running_loop()
        states = [self._state(position) for position in range(self.count)]
        with ThreadPoolExecutor(self.count) as pool:
            starts = [
                loop.run_in_executor(pool, state.agree_on_start, find_stored) for state in states
            ]
            async with asyncio.timeout(SECONDS):
                await asyncio.gather(*starts)
        return [state.found for state in states]

    def any_rank(self, mine: bool) -> bool:
        """Take the place of `AnyRank`."""
        self.votes.append(mine)
        self._meet.wait(SECONDS)
        return any(self.votes)

    def members(self) -> list[Member]:
        """Take the place of the library's `members`."""
        return [Member("", "worker", n, "127.0.0.1", f"node-{n}") for n in range(self.count)]

    def _state(self, position: int) -> StateInMemory:
        world = World(position, self.count, ROUND, "job", "127.0.0.1", "worker", position)
        connection = cast(AgentConnection, self.connections[position])
        state = StateInMemory(self.folder(position), STORE, connection, world)
        state.key = f"elasticjob/state/{STORE}/{ROUND}-0"
        return state


@asynccontextmanager
async def members(
    root: Path, monkeypatch: pytest.MonkeyPatch, count: int, rooms: dict[int, int] | None = None
) -> AsyncIterator[Members]:
    """Yield the members of a world that has not begun."""
    world = Members(root, count)
    chunks = peers._chunks

    def counted(folder: Any, name: Any) -> Iterator[state_pb2.PartChunk]:
        yield from chunks(folder, name)
        world.served[folder._root.name] += 1

    monkeypatch.setattr(peers, "_chunks", counted)
    monkeypatch.setattr(_state, "KeyValue", lambda: world.values)
    monkeypatch.setattr(_state, "AnyRank", lambda _name: world.any_rank)
    monkeypatch.setattr(_state, "members", world.members)
    try:
        await world.open(rooms or {})
        yield world
    finally:
        for agent in world.agents:
            await agent.close()
