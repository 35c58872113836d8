"""Serves the socket between the training processes and their agent.

The protocol is JSON lines, which any interpreter can write. A process sends
    {"process": 1, "of": 2}    first, if the pod has several processes
    {"step": 7, …}             a step report
    {"stoppable": true}        it listens for stops
    {"stopping": true}         it ends because of a stop
    {"left": 3, "ends": true}  it has left that world, and ends; without "ends" it waits for another
    {"world": 3}               its parent has joined that world
    {"id": 1, "call": …}       a call
and receives answers with the same id, {"stop": true} (with "leaving": true if this member leaves),
and {"world_changed": 3} when it can join a new world by the call `next_world`. `announced_world`
returns that world without joining it. To {"stacks": 1} a process answers {"stacks": 1, "frames":
[…], "others": […]}.

Any process that can open the socket may use the shards of this pod and read the list of hosts.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc.aio
from elasticjob_api.step_report import StepReport
from elasticjob_api.transports import abort
from elasticjob_api.v1 import agent_pb2

from elasticjob_agent import training_messages, writable_directory
from elasticjob_agent.present_round import PresentRound
from elasticjob_agent.proxy.master_call import CallError
from elasticjob_agent.proxy.master_proxy import MasterProxy
from elasticjob_agent.proxy.shards import Caller, Handler, Request

MAX_LINE_BYTES = 1 << 20
DISCONNECT_SECONDS = 1.0
MAX_CONNECTIONS = 1024
MAX_CONCURRENT_CALLS = 64
"""Calls of one connection that are answered concurrently."""
MAX_UNREAD_BYTES = 4 << 20
"""Bytes of answers that a process has not read; beyond that its connection is closed."""


@dataclass(eq=False, kw_only=True)
class _Connection(Caller):
    """One connection of a training process."""

    writer: asyncio.StreamWriter
    stoppable: bool = False
    """It listens for stops."""
    calls: int = 0
    """The number of calls that are being answered."""

    def send(self, message: dict[str, Any]) -> None:
        if self.writer.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            abort(self.writer.transport)  # the process does not read its answers
        if not self.writer.is_closing():
            self.writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")


class TrainingSocket:
    """Serves the training processes of one agent.

    All processes are asked to stop together, and one of them confirms for all.

    Attributes:
        present: the processes that were started last.
        leaving: this member leaves the job when they have ended.
    """

    def __init__(
        self,
        *,
        channel: grpc.aio.Channel,
        pod_uid: str,
        on_report: Callable[[StepReport], None],
        on_world_joined: Callable[[int], None] = lambda _round: None,
        on_world_left: Callable[[int, bool], None] = lambda _round, _ends: None,
        handlers: Mapping[str, Handler] = MappingProxyType({}),
    ) -> None:
        """Create the socket's folder.

        Args:
            channel: to the master, which answers the calls that have no handler.
            pod_uid: the UID of this pod.
            on_report: called with each step report.
            on_world_joined: called with the round of a world when all processes have joined it.
            on_world_left: called when all processes have left one, with whether all of them end.
            handlers: of the calls that the agent itself answers, by name.
        """
        self._proxy = MasterProxy(channel, pod_uid, handlers)
        self._on_report = on_report
        self._on_world_joined = on_world_joined
        self._on_world_left = on_world_left
        self._folder = Path(
            tempfile.mkdtemp(prefix="elasticjob-", dir=writable_directory.path_for_sockets())
        )
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._disconnected = asyncio.Event()
        self._stacks: tuple[int, asyncio.Future[Any]] | None = None
        self._last_stacks = 0
        self.present = PresentRound()
        self.leaving = False

    @property
    def path(self) -> Path:
        """The path of the socket."""
        return self._folder / "agent.sock"

    @property
    def listens_for_stop(self) -> bool:
        """Whether a present process listens for {"stop": true}; otherwise only SIGTERM helps."""
        return any(
            connection.stoppable and connection.round == self.present.number
            for connection in self._connections
        )

    def leased_shards(self) -> list[agent_pb2.LeasedShards]:
        """Return the shards that the processes of this pod have leased and not reported."""
        return self._proxy.leased_shards()

    async def open(self) -> None:
        """Start serving."""
        self._server = await asyncio.start_unix_server(
            self._serve, path=str(self.path), limit=MAX_LINE_BYTES
        )

    async def close(self) -> None:
        """Stop serving and remove the socket."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.writer.close()
        await self.wait_until_disconnected()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def wait_until_disconnected(self) -> None:
        """Wait at most `DISCONNECT_SECONDS` until the connections of ended processes are read."""
        try:
            async with asyncio.timeout(DISCONNECT_SECONDS):
                while self._connections:
                    self._disconnected.clear()
                    await self._disconnected.wait()
        except TimeoutError:
            return

    def begin_round(self, round_: int, world: agent_pb2.World, processes: int) -> None:
        """Expect a number of processes of a round, and forget the stops of earlier processes."""
        self.present = PresentRound(round_, world, processes)
        self._proxy.local_barriers.begin_processes()

    def process_ended(self, local_rank: int) -> None:
        """End the waits of the other processes for one that has ended."""
        self._proxy.local_barriers.process_ended(local_rank)

    def change_world(self, change: agent_pb2.WorldChanged) -> None:
        """Announce the next world to the present processes, unless they know it or a later one."""
        if not self.present.announce(change):
            return
        self._proxy.local_barriers.begin(change.world.round)
        for connection in self._connections:
            connection.send({"world_changed": change.world.round})

    async def stacks(self, local_rank: int, seconds: float) -> tuple[list[str], list[str]]:
        """Ask a process for its frames and other threads; none if it does not answer in time."""
        self._last_stacks += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._stacks = (self._last_stacks, answer)
        for connection in self._connections:
            if (connection.round, connection.local_rank) == (self.present.number, local_rank):
                connection.send({"stacks": self._last_stacks})
        try:
            told = await asyncio.wait_for(answer, seconds)
            frames = training_messages.texts(told.get("frames"), training_messages.MOST_FRAMES)
            others = training_messages.texts(told.get("others"), training_messages.MOST_THREADS)
        except (TimeoutError, ValueError):
            return [], []
        else:
            return frames, others
        finally:
            self._stacks = None

    def request_stop(self) -> None:
        """Ask the present processes to stop, on their present and their later connections."""
        self.present.stop_requested = True
        for connection in self._connections:
            connection.send(self._stop())

    def _stop(self) -> dict[str, Any]:
        return {"stop": True, **({"leaving": True} if self.leaving else {})}

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.close()
            return
        connection = _Connection(self.present.number, self.present.world, writer=writer)
        self._connections.add(connection)
        try:
            if self.present.stop_requested:
                connection.send(self._stop())
            if announced := self.present.announced.world.round:
                connection.send({"world_changed": announced})
            while line := await reader.readline():
                self._handle_line(connection, line)
        except (ConnectionError, ValueError):
            pass  # the process has exited, or sent a line longer than MAX_LINE_BYTES
        finally:
            self._connections.discard(connection)
            self._disconnected.set()
            writer.close()
            self._spawn(self._proxy.disconnected(connection))

    def _handle_line(self, connection: _Connection, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):  # RecursionError: deeply nested brackets
            message = None
        if not isinstance(message, dict):
            connection.send({"id": None, "error": "not a JSON object"})
        elif message.get("call") == "roles":
            roles = sorted({member.role for member in connection.world.members})
            connection.send({"id": message.get("id"), "result": {"roles": roles}})
        elif message.get("call") == "announced_world":
            connection.send({"id": message.get("id"), **self._announced_world(connection)})
        elif message.get("call") == "next_world":
            connection.send({"id": message.get("id"), **self._next_world(connection)})
        elif "id" in message and connection.calls >= MAX_CONCURRENT_CALLS:
            refusal = (
                f"{connection.calls} calls are under way on this connection; "
                f"at most {MAX_CONCURRENT_CALLS} are answered at a time"
            )
            connection.send({"id": message["id"], "error": refusal})
        elif "id" in message:
            connection.calls += 1
            self._spawn(self._answer(connection, message))
        elif message.get("stoppable") is True:
            connection.stoppable = True
        elif message.get("stopping") is True:
            self.present.stop_confirmed |= connection.round == self.present.number
        elif "left" in message:
            self._leave_world(connection, message)
        elif "world" in message:
            if message["world"] == self.present.announced.world.round:
                self._next_world(connection)
        elif "step" in message:
            self._report(connection, message)
        elif "stacks" in message:
            number, answer = self._stacks or (0, None)
            if answer is not None and message["stacks"] == number and not answer.done():
                answer.set_result(message)
        elif "process" in message:
            self._introduce(connection, message)
        else:
            connection.send({"id": None, "error": "neither a step, nor a call with an id"})

    def _announced_world(self, connection: _Connection) -> dict[str, Any]:
        """Return the answer with the announced world, and a process' place in it."""
        world = self.present.announced.world
        if connection.round != self.present.number or not world.round:
            return {
                "error": f"no other world was announced to the process of round {connection.round}"
            }
        members = training_messages.processes(world.members)
        return {"result": {**self.present.place(connection.local_rank), "members": members}}

    def _next_world(self, connection: _Connection) -> dict[str, Any]:
        """Let a process join the announced world, and return the answer: its place."""
        answer = self._announced_world(connection)
        if "error" in answer:
            return answer
        connection.world = self.present.announced.world
        if self.present.join(connection.local_rank):
            self._on_world_joined(self.present.joined_round)
        del answer["result"]["members"]  # the call `members` returns them
        return answer

    def _leave_world(self, connection: _Connection, message: dict[str, Any]) -> None:
        round_ = connection.world_round
        if connection.round != self.present.number or message["left"] != round_:
            return
        ends = message.get("ends") is True
        all_end = self.present.leave(connection.local_rank, round_, ends=ends)
        if all_end is not None:
            self._on_world_left(round_, all_end)

    def _introduce(self, connection: _Connection, message: dict[str, Any]) -> None:
        try:
            place = training_messages.local_place(message)
        except ValueError as error:
            connection.send({"id": None, "error": str(error)})
        else:
            connection.local_rank, connection.local_size = place

    def _report(self, connection: _Connection, message: dict[str, Any]) -> None:
        try:
            report = training_messages.step_report(
                message, round_=connection.world_round, local_rank=connection.local_rank
            )
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            connection.send({"id": None, "error": f"bad step report: {error}"})
        else:
            self._on_report(report)

    async def _answer(self, connection: _Connection, message: dict[str, Any]) -> None:
        try:
            if message.get("call") == "members":
                members = await self._proxy.members(connection.world)
                result: Request = {"members": training_messages.processes(members)}
            else:
                result = await self._proxy.call(message, connection)
        except CallError as error:
            connection.send({"id": message["id"], "error": str(error)})
        else:
            connection.send({"id": message["id"], "result": result})
        finally:
            connection.calls -= 1

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
