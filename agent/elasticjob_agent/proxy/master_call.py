"""Calls the master on behalf of the training process, until a master answers."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio

RETRIED_CODES = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)
CALL_TIMEOUT_SECONDS = 10.0
RETRY_PAUSE_SECONDS = 0.5


class CallError(Exception):
    """A call of the training process that cannot be answered; the message is for its user.

    `code` is the status with which the master refused it; None if the agent did.
    """

    code: grpc.StatusCode | None = None


async def call_until_answered(method: Any, message: Any) -> Any:
    """Call a method of a stub until the master answers; raises CallError if it refuses."""
    while True:
        try:
            return await method(message, timeout=CALL_TIMEOUT_SECONDS, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() not in RETRIED_CODES:
                refusal = CallError(f"{error.code().name}: {error.details()}")
                refusal.code = error.code()
                raise refusal from error
        await asyncio.sleep(RETRY_PAUSE_SECONDS)
