"""The socket on which the training process talks to its agent: JSON lines, so that any interpreter can speak it.

Up: step reports; {"stoppable": true} from a process that listens for stops, {"stopping": true} when it ends because of
one; calls with an id. Down: answers with the same id, and {"stop": true}. Any process that can open the socket may use
the shards of this pod and read the list of hosts.
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
    """One connection of the training process."""

    writer: asyncio.StreamWriter
    round: int
    stoppable: bool = False
    calls: int = 0

    def send(self, message: dict[str, Any]) -> None:
        if self.writer.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self.writer.transport.abort()  # the process does not read its answers
        if not self.writer.is_closing():
            self.writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")


class TrainingSocket:
    """Serves the training process of one agent."""

    def __init__(self, *, channel: grpc.aio.Channel, pod_uid: str, on_report: Callable[[StepReport], None]) -> None:
        """Pass calls on over a channel to the master, and step reports to `on_report`."""
        self._proxy = MasterProxy(channel, pod_uid)
        self._on_report = on_report
        self._folder = Path(tempfile.mkdtemp(prefix="elasticjob-", dir=writable_directory.path()))
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._round = 0
        self._stop_requested = False
        self._members: Sequence[agent_pb2.Member] = ()
        self._disconnected = asyncio.Event()
        self.stop_confirmed = False
        """The process of the present round has confirmed that it ends because of a stop."""

    @property
    def path(self) -> Path:
        """Where the socket is."""
        return self._folder / "agent.sock"

    @property
    def listens_for_stop(self) -> bool:
        """Whether the present process listens for {"stop": true}; one that does not is sent SIGTERM."""
        return any(connection.stoppable and connection.round == self._round for connection in self._connections)

    async def open(self) -> None:
        """Start serving."""
        self._server = await asyncio.start_unix_server(self._serve, path=str(self.path), limit=MAX_LINE_BYTES)

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
        """Wait until the ended process' connections are read to their end, at most `DISCONNECT_SECONDS`."""
        try:
            async with asyncio.timeout(DISCONNECT_SECONDS):
                while self._connections:
                    self._disconnected.clear()
                    await self._disconnected.wait()
        except TimeoutError:
            return

    def begin_round(self, round_: int, members: Sequence[agent_pb2.Member]) -> None:
        """Expect the process of a round: a stop that an earlier one was asked for, or has confirmed, is forgotten."""
        self._round, self._stop_requested, self.stop_confirmed = round_, False, False
        self._members = members

    def request_stop(self) -> None:
        """Ask the present process to stop, on all its connections and on those that it opens later."""
        self._stop_requested = True
        for connection in self._connections:
            connection.send({"stop": True})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.close()
            return
        connection = _Connection(writer, self._round)
        self._connections.add(connection)
        try:
            if self._stop_requested:
                connection.send({"stop": True})
            while line := await reader.readline():
                self._handle_line(connection, line)
        except (ConnectionError, ValueError):
            pass  # the process has exited, or sent a line longer than MAX_LINE_BYTES: the connection ends
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
            connection.send({"id": message.get("id"), "result": {"members": [_member(one) for one in self._members]}})
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
        elif "step" in message:
            self._report(connection, message)
        else:
            connection.send({"id": None, "error": "neither a step, nor a call with an id"})

    def _report(self, connection: _Connection, message: dict[str, Any]) -> None:
        try:
            report = StepReport(
                round=connection.round,
                step=_count(message["step"]),
                total=_count(message.get("total") or 0),
                samples=float(message.get("samples", 0)),
                seconds=float(message.get("seconds", 0)),
                metrics={_text(name): float(value) for name, value in (message.get("metrics") or {}).items()},
                time=float(message.get("time", 0)),
                steps=_count(message.get("steps", 0)),
                compute_seconds=float(message.get("compute_seconds", 0)),
            )
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            connection.send({"id": None, "error": f"bad step report: {error}"})
            return
        self._on_report(report)

    async def _answer(self, connection: _Connection, message: dict[str, Any]) -> None:
        try:
            connection.send({"id": message["id"], "result": await self._proxy.call(message, connection)})
        except CallError as error:
            connection.send({"id": message["id"], "error": str(error)})
        finally:
            connection.calls -= 1

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _member(source: agent_pb2.Member) -> dict[str, Any]:
    identity = {"pod": source.pod_name, "role": source.role, "index": source.index}
    return {**identity, "address": source.address, "node": source.node_name}


def _text(value: str) -> str:
    value.encode()  # half a surrogate pair is valid JSON, but cannot be encoded in a protobuf message
    return value


def _count(value: Any) -> int:
    number = int(value)
    if not 0 <= number < 1 << 63:
        raise ValueError(f"{number} is not a step number")
    return number
