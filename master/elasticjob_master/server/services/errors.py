"""The gRPC status of each kind of refusal, the same for all services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from elasticjob_api.refusals import (
    BadRequest,
    DeclaredDifferently,
    LimitReached,
    NotCurrent,
    NotReadyYet,
    UnknownName,
)

from elasticjob_master.persistence.state_writer import NotStored

_CODES: dict[type[Exception], grpc.StatusCode] = {
    BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
    LimitReached: grpc.StatusCode.RESOURCE_EXHAUSTED,
    NotCurrent: grpc.StatusCode.FAILED_PRECONDITION,
    UnknownName: grpc.StatusCode.NOT_FOUND,
    DeclaredDifferently: grpc.StatusCode.ALREADY_EXISTS,
    TimeoutError: grpc.StatusCode.DEADLINE_EXCEEDED,
    # Agents repeat calls that are UNAVAILABLE, as they do while no master runs.
    NotReadyYet: grpc.StatusCode.UNAVAILABLE,
    NotStored: grpc.StatusCode.UNAVAILABLE,
}


@asynccontextmanager
async def abort_on_refusal(context: Any) -> AsyncIterator[None]:
    """Abort the call with the status of a refusal that is raised in this context."""
    try:
        yield
    except tuple(_CODES) as error:
        await context.abort(_CODES[type(error)], str(error))
