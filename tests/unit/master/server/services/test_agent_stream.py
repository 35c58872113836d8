"""Checks the order of an agent's messages, and agents that do not read."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import grpc.aio
import pytest
from elasticjob_api.v1 import agent_pb2 as pb
from elasticjob_master.server.services.agent_stream import (
    CONCURRENT_WRITES,
    AgentStream,
    WriteTurns,
)

SECONDS = 20.0


class FakeTransport:
    """A transport. `read` returns items of `incoming`; `write` blocks unless `reads`."""

    def __init__(self, *, reads: bool = True) -> None:
        self.written: list[bytes] = []
        self.incoming: asyncio.Queue[Any] = asyncio.Queue()
        self._reads = asyncio.Event()
        if reads:
            self._reads.set()

    async def read(self) -> Any:
        return await self.incoming.get()

    async def write(self, message: bytes) -> None:
        await self._reads.wait()
        self.written.append(message)


def opened(
    transport: Any, turns: WriteTurns
) -> tuple[AgentStream, asyncio.Task[None], list[pb.AgentMessage]]:
    stream = AgentStream(transport, turns)
    taken = list[pb.AgentMessage]()
    return stream, asyncio.create_task(stream.serve(taken.append)), taken


async def check_that_a_turn_is_free(turns: WriteTurns) -> None:
    transport = FakeTransport()
    last, serving, _ = opened(transport, turns)
    last.send(lambda: b"world")
    last.send(None)
    async with asyncio.timeout(SECONDS):
        await serving
    assert transport.written == [b"world"]


async def test_the_master_ends_a_stream_after_its_earlier_messages() -> None:
    transport = FakeTransport()
    stream, serving, _ = opened(transport, WriteTurns())
    for number in range(5):
        stream.send(partial(bytes, [number]))
    stream.send(None)
    async with asyncio.timeout(SECONDS):
        await serving
    assert transport.written == [bytes([number]) for number in range(5)]


async def test_an_agent_that_ends_its_stream_still_receives_queued_messages() -> None:
    transport = FakeTransport()
    stream, serving, taken = opened(transport, WriteTurns())
    hello = pb.AgentMessage(hello=pb.Hello(pod_uid="uid-0"))
    transport.incoming.put_nowait(hello)
    transport.incoming.put_nowait(grpc.aio.EOF)
    stream.send(lambda: b"last")
    async with asyncio.timeout(SECONDS):
        await serving
    assert transport.written == [b"last"]
    assert taken == [hello]


@pytest.mark.guarantee("slow-agent")
async def test_agents_that_do_not_read_do_not_block_other_agents() -> None:
    turns = WriteTurns()
    rendered = list[int]()

    def render(number: int) -> bytes:
        rendered.append(number)
        return b"world"

    not_reading = [opened(FakeTransport(reads=False), turns) for _ in range(2 * CONCURRENT_WRITES)]
    transport = FakeTransport()
    last, serving, _ = opened(transport, turns)
    for number, (stream, _, _) in enumerate(not_reading):
        stream.send(partial(render, number))
    last.send(lambda: b"world")
    last.send(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(rendered) == CONCURRENT_WRITES, (
        "the number of copies of a world in memory is bounded"
    )
    async with asyncio.timeout(SECONDS):
        await serving
    assert transport.written == [b"world"]
    for _, each, _ in not_reading:
        each.cancel()
    await asyncio.gather(*(each for _, each, _ in not_reading), return_exceptions=True)


async def test_a_failed_write_ends_the_stream() -> None:
    class Broken(FakeTransport):
        async def write(self, message: bytes) -> None:
            raise grpc.aio.UsageError("the call is over")

    stream, serving, _ = opened(Broken(), WriteTurns())
    stream.send(lambda: b"lost")
    async with asyncio.timeout(SECONDS):
        await serving


async def test_streams_that_end_before_their_turn_use_up_no_turn() -> None:
    turns = WriteTurns(1)
    blocked, blocked_serving, _ = opened(FakeTransport(reads=False), turns)
    blocked.send(lambda: b"world")
    await asyncio.sleep(0)
    ended = [opened(FakeTransport(), turns) for _ in range(5_000)]
    for stream, _, _ in ended:
        stream.send(lambda: b"world")
    for each in (blocked_serving, *(serving for _, serving, _ in ended)):
        each.cancel()
    await asyncio.gather(
        blocked_serving, *(serving for _, serving, _ in ended), return_exceptions=True
    )
    await check_that_a_turn_is_free(turns)


async def test_a_stream_cancelled_when_its_turn_has_just_begun_gives_it_back() -> None:
    turns = WriteTurns(1)
    first, first_serving, _ = opened(FakeTransport(), turns)
    await asyncio.sleep(0)
    first.send(lambda: b"world")
    first_serving.cancel()  # before the task that writes has run
    await asyncio.gather(first_serving, return_exceptions=True)
    await check_that_a_turn_is_free(turns)
