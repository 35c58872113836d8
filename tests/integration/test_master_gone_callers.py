"""Checks that callers who disconnect during an answer cause no error in the log."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import grpc.aio
import pytest
import uvloop
from elasticjob_master.server.grpc_server import leave_gone_callers_out_of_the_log

LARGE = bytes(4 * 2**20)
"""More than a caller receives without reading, so that it disconnects during the write."""
ROUNDS = 100
CALLER = """
import asyncio, sys, grpc.aio

async def call_and_go():
    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(sys.argv[1], options=options) as channel:
        calls = [channel.unary_stream("/test/Watch")(b"", timeout=60) for _ in range(40)]
        await calls[0].read()

asyncio.run(call_and_go())
"""


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Return the messages that grpc logs, before the master's filter."""
    logger = logging.getLogger("grpc._cython.cygrpc")
    found = list[str]()

    def note(record: logging.LogRecord) -> bool:
        found.append(record.getMessage())
        return True

    logger.addFilter(note)
    yield found
    for each in list(logger.filters):
        logger.removeFilter(each)


def test_a_caller_that_disconnects_is_not_an_error_in_the_masters_log(
    logged: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    leave_gone_callers_out_of_the_log()
    uvloop.run(answer_callers_that_go(logged))  # the master's event loop
    assert any("Error" in message for message in logged), (
        f"grpc has logged no error in {ROUNDS} rounds"
    )
    assert [
        record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR
    ] == []


async def answer_callers_that_go(logged: list[str]) -> None:
    """Serve one caller after another, until grpc notices too late that one has disconnected."""

    async def watch(_request: bytes, context: Any) -> None:
        while True:
            await context.write(LARGE)

    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    methods: dict[str, Any] = {"Watch": grpc.unary_stream_rpc_method_handler(watch)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    for _ in range(ROUNDS):
        caller = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CALLER, f"127.0.0.1:{port}"
        )
        assert await caller.wait() == 0
        if logged:
            break
    await server.stop(5)
