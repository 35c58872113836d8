"""The socket on which the training processes talk to their agent.

JSON lines, so that any interpreter can speak it. Up: {"process": 1, "of": 2} from one of several
processes, before all else; step reports; {"stoppable": true} from a process that listens for stops,
{"stopping": true} when it ends because of one; {"world": 3} from a process whose parent has taken
that world; calls with an id. Down: answers with the same id, {"stop": true}, and {"world_changed":
3} when there is a new world to take, by the call next_world. Any process that can open the socket
may use the shards of this pod and read the list of hosts.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc.aio
from elasticjob_api.limits import MAX_SLOTS
from elasticjob_api.v1 import agent_pb2

from elasticjob_agent import writable_directory
from elasticjob_agent.proxy.master_call import CallError
from elasticjob_agent.proxy.master_proxy import MasterProxy
from elasticjob_agent.step_reports import StepReport

MAX_LINE_BYTES = 1 << 20
DISCONNECT_SECONDS = 1.0
MAX_CONNECTIONS = 1024
MAX_CONCURRENT_CALLS = 64
"""Calls that are answered at a time on one connection."""
MAX_UNREAD_BYTES = 4 << 20
"""Bytes of answers that wait to be read; a connection on which more wait is closed."""


@dataclass(eq=False)
class _Connection:
    """One connection of a training process, which is that of a local rank among the processes of this member.

    Attributes:
        round: in which the process was started.
        world_round: of the latest world that it has taken.
        members: of that world.
    """

    writer: asyncio.StreamWriter
    round: int
    world_round: int
    members: Sequence[agent_pb2.Member]
    local_rank: int = 0
    local_size: int = 1
    stoppable: bool = False
    calls: int = 0

    def send(self, message: dict[str, Any]) -> None:
        if self.writer.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self.writer.transport.abort()  # the process does not read its answers
        if not self.writer.is_closing():
            self.writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")


class TrainingSocket:
    """Serves the training processes of one agent.

    They are asked to stop together, and one confirms for all.
    """

    def __init__(
        self,
        *,
        channel: grpc.aio.Channel,
        pod_uid: str,
        on_report: Callable[[StepReport], None],
        on_world_taken: Callable[[int], None] = lambda _round: None,
    ) -> None:
        """Pass calls on over a channel to the master, and step reports to `on_report`.

        `on_world_taken` is called with the round of a world when all processes have taken it.
        """
        self._proxy = MasterProxy(channel, pod_uid)
        self._on_report = on_report
        self._on_world_taken = on_world_taken
        self._folder = Path(
            tempfile.mkdtemp(prefix="elasticjob-", dir=writable_directory.path_for_sockets())
        )
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._round = 0
        self._stop_requested = False
        self._members: Sequence[agent_pb2.Member] = ()
        self._processes = 1
        self._told = agent_pb2.WorldChanged()
        self._taken_by: set[int] = set()
        self._disconnected = asyncio.Event()
        self.stop_confirmed = False
        """A process of the present round has confirmed that it ends because of a stop."""
        self.joined_round = 0
        """The round of the latest world that all present processes have taken after their start; 0:
        none.
        """

    @property
    def path(self) -> Path:
        """Where the socket is."""
        return self._folder / "agent.sock"

    @property
    def listens_for_stop(self) -> bool:
        """Whether a present process listens for {"stop": true}.

        If none does, they are sent SIGTERM.
        """
        return any(
            connection.stoppable and connection.round == self._round
            for connection in self._connections
        )

    def leased_shards(self) -> list[agent_pb2.LeasedShards]:
        """Return what the processes of this pod have leased, as far as no master has confirmed that it is reported."""
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
        """Wait until the ended processes' connections are read to their end, at most `DISCONNECT_SECONDS`."""
        try:
            async with asyncio.timeout(DISCONNECT_SECONDS):
                while self._connections:
                    self._disconnected.clear()
                    await self._disconnected.wait()
        except TimeoutError:
            return

    def begin_round(self, round_: int, members: Sequence[agent_pb2.Member], processes: int) -> None:
        """Expect so many processes of a round.

        What earlier ones were asked for, or have confirmed, is forgotten.
        """
        self._round = round_
        self._stop_requested = False
        self.stop_confirmed = False
        self._members = members
        self._processes = processes
        self._told, self._taken_by, self.joined_round = agent_pb2.WorldChanged(), set(), 0

    def change_world(self, change: agent_pb2.WorldChanged) -> None:
        """Tell the present processes their next world.

        Only the latest one counts, and a repetition changes nothing.
        """
        round_ = change.world.round
        if round_ <= max(self._round, self._told.world.round):
            return
        self._told, self._taken_by = change, set()
        self._proxy.world_over(round_)
        for connection in self._connections:
            connection.send({"world_changed": round_})

    def request_stop(self) -> None:
        """Ask the present processes to stop, on all their connections and on those that they open later."""
        self._stop_requested = True
        for connection in self._connections:
            connection.send({"stop": True})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.close()
            return
        connection = _Connection(writer, self._round, self._round, self._members)
        self._connections.add(connection)
        try:
            if self._stop_requested:
                connection.send({"stop": True})
            if self._told.world.round:
                connection.send({"world_changed": self._told.world.round})
            while line := await reader.readline():
                self._handle_line(connection, line)
        except (ConnectionError, ValueError):
            # the process has exited, or sent a line longer than MAX_LINE_BYTES: the connection ends
            pass
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
        elif message.get("call") == "members":
            connection.send(
                {"id": message.get("id"), "result": {"members": _processes(connection.members)}}
            )
        elif message.get("call") == "next_world":
            connection.send({"id": message.get("id"), **self._next_world(connection)})
        elif "id" in message and connection.calls >= MAX_CONCURRENT_CALLS:
            refusal = f"{connection.calls} calls are under way on this connection; at most {MAX_CONCURRENT_CALLS} are"
            connection.send({"id": message["id"], "error": f"{refusal} answered at a time"})
        elif "id" in message:
            connection.calls += 1
            self._spawn(self._answer(connection, message))
        elif message.get("stoppable") is True:
            connection.stoppable = True
        elif message.get("stopping") is True:
            self.stop_confirmed = self.stop_confirmed or connection.round == self._round
        elif "world" in message:
            if message["world"] == self._told.world.round:
                self._next_world(connection)
        elif "step" in message:
            self._report(connection, message)
        elif "process" in message:
            self._introduce(connection, message)
        else:
            connection.send({"id": None, "error": "neither a step, nor a call with an id"})

    def _next_world(self, connection: _Connection) -> dict[str, Any]:
        """Give a process its place in the world that it was told, and return the answer."""
        world = self._told.world
        if connection.round != self._round or not world.round:
            return {"error": f"the process of round {connection.round} was told no other world"}
        connection.world_round = world.round
        connection.members = world.members
        self._taken_by.add(connection.local_rank)
        if len(self._taken_by) >= self._processes and self.joined_round < world.round:
            self.joined_round = world.round
            self._on_world_taken(world.round)
        size = sum(max(1, member.processes) for member in world.members)
        return {
            "result": {
                "round": world.round,
                "rank": self._told.rank + connection.local_rank,
                "size": size,
            }
        }

    def _introduce(self, connection: _Connection, message: dict[str, Any]) -> None:
        local_rank = message["process"]
        local_size = message.get("of")
        if (
            isinstance(local_rank, int)
            and isinstance(local_size, int)
            and 0 <= local_rank < local_size <= MAX_SLOTS
        ):
            connection.local_rank = local_rank
            connection.local_size = local_size
        else:
            limits = f"process must be a number from 0 to of - 1, and of at most {MAX_SLOTS}"
            connection.send(
                {"id": None, "error": f"{limits}, not {local_rank!r} of {local_size!r}"}
            )

    def _report(self, connection: _Connection, message: dict[str, Any]) -> None:
        try:
            report = StepReport(
                round=connection.world_round,
                local_rank=connection.local_rank,
                step=_count(message["step"]),
                total=_count(message.get("total") or 0),
                samples=float(message.get("samples", 0)),
                seconds=float(message.get("seconds", 0)),
                metrics={
                    _text(name): float(value)
                    for name, value in (message.get("metrics") or {}).items()
                },
                steps=_count(message.get("steps", 0)),
                compute_seconds=float(message.get("compute_seconds", 0)),
            )
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            connection.send({"id": None, "error": f"bad step report: {error}"})
            return
        self._on_report(report)

    async def _answer(self, connection: _Connection, message: dict[str, Any]) -> None:
        try:
            connection.send(
                {"id": message["id"], "result": await self._proxy.call(message, connection)}
            )
        except CallError as error:
            connection.send({"id": message["id"], "error": str(error)})
        finally:
            connection.calls -= 1

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _processes(members: Sequence[agent_pb2.Member]) -> list[dict[str, Any]]:
    """Return the processes of the world, by rank."""
    return [
        {
            "pod": member.pod_name,
            "role": member.role,
            "index": member.index,
            "address": member.address,
            "node": member.node_name,
            "local_rank": local_rank,
        }
        for member in members
        for local_rank in range(max(1, member.processes))
    ]


def _text(value: str) -> str:
    # half a surrogate pair is valid JSON, but cannot be encoded in a protobuf message
    value.encode()
    return value


def _count(value: Any) -> int:
    number = int(value)
    if not 0 <= number < 1 << 63:
        raise ValueError(f"{number} is not a step number")
    return number
