"""The stream of one agent.

A task reads the stream for as long as it is open. A second task exists only while a message is
written, because the master rarely has a message for most agents. It begins when the message has a
turn: tasks for all members of a large world at the same time would delay everything else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import grpc
import grpc.aio
from elasticjob_api.v1 import agent_pb2 as pb
from google.protobuf.message import DecodeError

Context: TypeAlias = "grpc.aio.ServicerContext[pb.AgentMessage, bytes]"
Render = Callable[[], bytes]

CONCURRENT_WRITES = 32
"""A new world is sent to all its members at the same time. This bounds its copies in memory."""
_WRITE_TURN_SECONDS = 0.1
"""How long an agent that does not read delays the writes to others."""


class WriteTurns:
    """Bounds the writes that are under way; the others wait in their order, without a task each."""

    def __init__(self, number: int = CONCURRENT_WRITES) -> None:
        self._free = number
        self._waiting: deque[Callable[[], bool]] = deque()

    def take(self, begin: Callable[[], bool]) -> None:
        """Call `begin` when there is a turn; it returns whether it needs it and gives it back."""
        self._waiting.append(begin)
        if self._free:
            self._free -= 1
            self.give_back()

    def give_back(self) -> None:
        """End a turn."""
        while self._waiting:
            if self._waiting.popleft()():
                return
        self._free += 1


class AgentStream:
    """Reads and writes the stream of one agent."""

    def __init__(self, context: Context, turns: WriteTurns) -> None:
        self._context = context
        self._turns = turns
        self._waiting: list[Render | None] = []  # a deque would need more memory than all the rest
        self._writer: asyncio.Task[None] | None = None
        self._is_writing = False
        self._has_turn = False
        self._written: asyncio.Future[None] | None = None
        self._reading = asyncio.timeout(None)
        self._ended = False

    async def read(self) -> pb.AgentMessage | None:
        """Return the agent's next message, or None at the end of the stream.

        Bytes that cannot be decoded end the stream.
        """
        try:
            message: object = await self._context.read()
        except DecodeError:
            self._ended = True
            self._waiting.clear()
            if self._writer is not None:
                # grpc cannot end a stream during a write.
                await asyncio.wait({self._writer})
            problem = "these bytes are not an elasticjob.v1.AgentMessage"
            await self._context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        return message if isinstance(message, pb.AgentMessage) else None

    def send(self, render: Render | None) -> None:
        """Queue a message, which `render` serializes when its turn comes. None ends the stream."""
        if self._ended:
            return
        self._waiting.append(render)
        if not self._is_writing:
            self._is_writing = True
            self._turns.take(self._begin)

    async def serve(self, take: Callable[[pb.AgentMessage], None]) -> None:
        """Pass the agent's messages to `take` until the stream ends, then write what is queued."""
        try:
            async with self._reading:
                while (message := await self.read()) is not None:
                    take(message)
            self._ended = True
            if self._is_writing:
                self._written = asyncio.get_running_loop().create_future()
                await self._written
        except TimeoutError:
            if not self._reading.expired():
                raise
        finally:
            self._ended = True
            self._waiting.clear()
            if self._writer is not None:
                self._writer.cancel()
                await asyncio.gather(self._writer, return_exceptions=True)
            self._give_back()

    def _begin(self) -> bool:
        if self._waiting:
            self._has_turn = True
            self._writer = asyncio.create_task(self._write())
        return self._has_turn

    async def _write(self) -> None:
        """Write one message; what else is queued needs another turn."""
        ended = True
        try:
            render = self._waiting.pop(0)
            if render is None:
                return
            writing = asyncio.ensure_future(self._context.write(render()))
            writing.add_done_callback(_retrieve_error)
            await asyncio.wait({writing}, timeout=_WRITE_TURN_SECONDS)
            self._give_back()
            await writing
            ended = False
        finally:
            self._give_back()
            self._end_write(ended=ended)

    def _end_write(self, *, ended: bool) -> None:
        if self._waiting and not ended:
            self._turns.take(self._begin)
            return
        self._is_writing = False
        if self._written is not None and not self._written.done():
            self._written.set_result(None)
        if ended and not self._ended:
            self._reading.reschedule(0.0)  # ends the reading task

    def _give_back(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._turns.give_back()


async def in_turn(turns: asyncio.Semaphore, context: Any) -> None:
    """Wait for a turn to answer a call, which ends with the call or after a short time."""
    await turns.acquire()
    loop = asyncio.get_running_loop()
    end = loop.call_later(_WRITE_TURN_SECONDS, turns.release)

    def end_at_once(_context: object) -> None:
        if loop.time() < end.when():
            end.cancel()
            turns.release()

    context.add_done_callback(end_at_once)


def _retrieve_error(written: asyncio.Future[None]) -> None:
    """Retrieve the error of a write, which asyncio would log after the stream has ended."""
    if not written.cancelled():
        written.exception()
