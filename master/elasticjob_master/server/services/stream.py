"""One agent's stream.

Reads until either side ends it, and writes only while there is something to write. Most of the time
there is nothing to write to most agents, so each of them costs only the one task that reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

import grpc
import grpc.aio
from elasticjob_api.v1 import agent_pb2 as pb
from google.protobuf.message import DecodeError

Context: TypeAlias = "grpc.aio.ServicerContext[pb.AgentMessage, bytes]"
Render = Callable[[], bytes]

CONCURRENT_WRITES = 32
"""A new world is sent to all its members at the same time: so many copies of it are in memory, not
one for each.
"""
_WRITE_TURN_SECONDS = 0.1
"""An agent that does not read keeps the others waiting no longer than this."""


class AgentStream:
    """The stream of one agent."""

    def __init__(self, context: Context, turns: asyncio.Semaphore) -> None:
        self._context = context
        self._turns = turns
        self._waiting: list[Render | None] = []  # a deque would take more memory than all the rest
        self._writer: asyncio.Task[None] | None = None
        self._reading = asyncio.timeout(None)
        self._ended = False

    async def read(self) -> pb.AgentMessage | None:
        """Return the agent's next message, or None at its end.

        Bytes that are no message end the stream.
        """
        try:
            message: object = await self._context.read()
        except DecodeError:
            self._ended = True
            if self._writer is not None:
                await asyncio.wait(
                    {self._writer}
                )  # grpc cannot end a stream in the middle of a write
            await self._context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "these bytes are no elasticjob.v1.AgentMessage"
            )
        return message if isinstance(message, pb.AgentMessage) else None

    def send(self, render: Render | None) -> None:
        """Write what this renders, after what was sent before; None ends the stream."""
        if self._ended:
            return
        self._waiting.append(render)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write())

    async def serve(self, take: Callable[[pb.AgentMessage], None]) -> None:
        """Pass the agent's messages to `take` until the stream ends.

        What was sent before that is still written.
        """
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
                self._reading.reschedule(0.0)  # the time is over: nothing is read any more

    async def _write_in_turn(self, render: Render) -> None:
        async with self._turns:
            writing = asyncio.ensure_future(self._context.write(render()))
            writing.add_done_callback(_retrieve_error)
            await asyncio.wait({writing}, timeout=_WRITE_TURN_SECONDS)
        await writing


def _retrieve_error(written: asyncio.Future[None]) -> None:
    """Retrieve the error of a write, or asyncio would log it.

    Nobody waits for the write once the stream has ended.
    """
    if not written.cancelled():
        written.exception()
