"""What the log says of connections whose errors no request gets."""

from __future__ import annotations

import asyncio

import pytest
from elasticjob_kube.connection import log_broken_connections_briefly


async def test_a_broken_connection_is_one_line_and_any_other_error_keeps_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log_broken_connections_briefly()
    loop = asyncio.get_running_loop()
    closed = RuntimeError("the handler is closed")
    context = {"message": "Fatal error on SSL protocol", "exception": closed, "protocol": None}
    loop.call_exception_handler(context)
    (line,) = caplog.records
    assert line.getMessage().endswith("Fatal error on SSL protocol: the handler is closed")
    assert line.exc_info is None
    loop.call_exception_handler({"message": "a task has failed", "exception": closed})
    assert caplog.records[-1].exc_info is not None
