"""One call to the master on behalf of the training process: repeated until a master answers it."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

RETRIED_CODES = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})
CALL_TIMEOUT_SECONDS = 10.0
RETRY_PAUSE_SECONDS = 0.5


class CallError(Exception):
    """A call of the training process that cannot be answered; the message is for its user."""


async def call_until_answered(method: Any, message: Any) -> Any:
    """Call a method of a stub until the master answers; returns its answer.

    Raises:
        CallError: the master has refused the call; its cause is the gRPC error.
    """
    while True:
        try:
            return await method(message, timeout=CALL_TIMEOUT_SECONDS, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() not in RETRIED_CODES:
                raise CallError(f"{error.code().name}: {error.details()}") from error
        await asyncio.sleep(RETRY_PAUSE_SECONDS)
