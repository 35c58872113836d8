"""The socket on which the training process talks to its agent: JSON lines, so that any interpreter can speak it.

Up: step reports; {"stoppable": true} from a process that listens for stops, {"stopping": true} when it ends because of
one; calls with an id. Down: answers with the same id, and {"stop": true}. Whoever can open the socket is trusted with
the shards of this pod and with the list of hosts.
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
from elasticjob_agent.proxy.master_proxy import BadCall, Calls
from elasticjob_agent.step_reports import Report

LINE_BYTES = 1 << 20
SETTLE_SECONDS = 1.0
MOST_PEERS = 1024
MOST_CALLS = 64
"""That are answered at a time on one connection."""
UNREAD_BYTES = 4 << 20
"""Of answers that wait to be read; a connection on which more wait is ended."""


@dataclass(eq=False)
class _Peer:
    """One connection of the training process."""

    writer: asyncio.StreamWriter
    round: int
    stoppable: bool = False
    calls: int = 0

    def send(self, message: dict[str, Any]) -> None:
        if self.writer.transport.get_write_buffer_size() > UNREAD_BYTES:
            self.writer.transport.abort()  # nobody reads
        if not self.writer.is_closing():
            self.writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")


class Local:
    """Serves the training process of one agent."""

    def __init__(self, *, channel: grpc.aio.Channel, pod_uid: str, on_report: Callable[[Report], None]) -> None:
        """Serve calls over a channel to the master, and hand reports on."""
        self._calls = Calls(channel, pod_uid)
        self._on_report = on_report
        self._folder = Path(tempfile.mkdtemp(prefix="elasticjob-", dir=writable_directory.path()))
        self._peers: set[_Peer] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._round = 0
        self._stop = False
        self._members: Sequence[agent_pb2.Member] = ()
        self._left = asyncio.Event()
        self.confirmed = False
        """The process has said that it ends because of a stop."""

    @property
    def path(self) -> Path:
        """Where the socket is."""
        return self._folder / "agent.sock"

    @property
    def stoppable(self) -> bool:
        """Whether the present process listens for stops; otherwise it takes a signal."""
        return any(peer.stoppable and peer.round == self._round for peer in self._peers)

    async def open(self) -> None:
        """Start serving."""
        self._server = await asyncio.start_unix_server(self._serve, path=str(self.path), limit=LINE_BYTES)

    async def close(self) -> None:
        """Stop serving and remove the socket."""
        if self._server is not None:
            self._server.close()
        for peer in self._peers:
            peer.writer.close()
        await self.settle()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def settle(self) -> None:
        """Wait until all has been read that the ended process has written; whoever else is connected may stay."""
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while self._peers:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            return

    def begin(self, round_: int, members: Sequence[agent_pb2.Member]) -> None:
        """Expect the process of a round; what an earlier one has said or was told does not count."""
        self._round, self._stop, self.confirmed = round_, False, False
        self._members = members

    def stop(self) -> None:
        """Ask the present process to stop; also those of its connections that are still to come."""
        self._stop = True
        for peer in self._peers:
            peer.send({"stop": True})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._peers) >= MOST_PEERS:
            writer.close()
            return
        peer = _Peer(writer, self._round)
        self._peers.add(peer)
        try:
            if self._stop:
                peer.send({"stop": True})
            while line := await reader.readline():
                self._take(peer, line)
        except (ConnectionError, ValueError):
            pass  # the process is gone, or sent a line beyond all bounds: the connection ends
        finally:
            self._peers.discard(peer)
            self._left.set()
            writer.close()
            self._spawn(self._calls.left(peer))

    def _take(self, peer: _Peer, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):  # the latter of brackets in brackets
            message = None
        if not isinstance(message, dict):
            peer.send({"id": None, "error": "not a JSON object"})
        elif message.get("call") == "members":
            peer.send({"id": message.get("id"), "result": {"members": [_member(one) for one in self._members]}})
        elif "id" in message and peer.calls >= MOST_CALLS:
            text = f"{peer.calls} calls are under way on this connection; at most {MOST_CALLS} are answered at a time"
            peer.send({"id": message["id"], "error": text})
        elif "id" in message:
            peer.calls += 1
            self._spawn(self._answer(peer, message))
        elif message.get("stoppable") is True:
            peer.stoppable = True
        elif message.get("stopping") is True:
            self.confirmed = self.confirmed or peer.round == self._round
        elif "step" in message:
            self._report(peer, message)
        else:
            peer.send({"id": None, "error": "neither a step, nor a call with an id"})

    def _report(self, peer: _Peer, message: dict[str, Any]) -> None:
        try:
            report = Report(
                round=peer.round,
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
            peer.send({"id": None, "error": f"bad step report: {error}"})
            return
        self._on_report(report)

    async def _answer(self, peer: _Peer, message: dict[str, Any]) -> None:
        try:
            peer.send({"id": message["id"], "result": await self._calls.call(message, peer)})
        except BadCall as error:
            peer.send({"id": message["id"], "error": str(error)})
        finally:
            peer.calls -= 1

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _member(source: agent_pb2.Member) -> dict[str, Any]:
    who = {"pod": source.pod_name, "role": source.role, "index": source.index}
    return {**who, "address": source.address, "node": source.node_name}


def _text(value: str) -> str:
    value.encode()  # half a surrogate pair is JSON, but no message
    return value


def _count(value: Any) -> int:
    number = int(value)
    if not 0 <= number < 1 << 63:
        raise ValueError(f"{number} is not a step number")
    return number
