"""The stream of one agent.

A task reads the stream for as long as it is open. A second task exists only while messages wait to
be written, because the master rarely has a message for most agents.
"""

from __future__ import annotations

import asyncio
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


class AgentStream:
    """Reads and writes the stream of one agent."""

    def __init__(self, context: Context, turns: asyncio.Semaphore) -> None:
        self._context = context
        self._turns = turns
        self._waiting: list[Render | None] = []  # a deque would need more memory than all the rest
        self._writer: asyncio.Task[None] | None = None
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
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())

    async def serve(self, take: Callable[[pb.AgentMessage], None]) -> None:
        """Pass the agent's messages to `take` until the stream ends, then write what is queued."""
        try:
            async with self._reading:
                while (message := await self.read()) is not None:
                    take(message)
            if self._writer is not None:
                self._ended = True
                await self._writer
        except TimeoutError:
            if not self._reading.expired():
                raise
        finally:
            self._ended = True
            if self._writer is not None:
                self._writer.cancel()
                await asyncio.gather(self._writer, return_exceptions=True)

    async def _write(self) -> None:
        ended = True
        try:
            while self._waiting:
                render = self._waiting.pop(0)
                if render is None:
                    return
                await self._write_in_turn(render)
            ended = False
        finally:
            if ended and not self._ended:
                self._reading.reschedule(0.0)  # ends the reading task

    async def _write_in_turn(self, render: Render) -> None:
        async with self._turns:
            writing = asyncio.ensure_future(self._context.write(render()))
            writing.add_done_callback(_retrieve_error)
            await asyncio.wait({writing}, timeout=_WRITE_TURN_SECONDS)
        await writing


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
