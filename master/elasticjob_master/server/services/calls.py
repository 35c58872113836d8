"""The gRPC status of each kind of refusal, the same for all services, which raise it.

Without `refusing`, grpc takes a refusal, and bytes that cannot be decoded, for errors of the
server: it answers UNKNOWN and logs a traceback each time.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import aclosing
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
from google.protobuf.message import DecodeError

from elasticjob_master.persistence.state_writer import NotStored

Behaviour = Callable[[Any, Any], Awaitable[Any]]

_FIRST_BYTES = 1500
_LAST_BYTES = 500
"""Of a long reason; its end says what to do. A byte may need three in a header, and beyond 8 KiB
grpc replaces the status by one of its own.
"""
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
REFUSALS = tuple(_CODES)


def refusing(handler: Any, method: str) -> Behaviour:
    """Return the behaviour of a handler, which answers refusals and undecodable bytes.

    It decodes a single request itself, so that it can refuse it.
    """
    behave = handler.unary_unary or handler.unary_stream or handler.stream_stream
    if handler.response_streaming:
        behave = _writing_answers(behave)
    read = None if handler.request_streaming else handler.request_deserializer

    async def answer(request: Any, context: Any) -> Any:
        try:
            return await behave(request if read is None else read(request), context)
        except DecodeError:
            code = grpc.StatusCode.INVALID_ARGUMENT
            problem = f"these bytes are not a request of {method}"
        except NotImplementedError:  # from the generated code of a method without an implementation
            code = grpc.StatusCode.UNIMPLEMENTED
            problem = f"{method} is not served here"
        except REFUSALS as error:
            code = _CODES[type(error)]
            problem = _cut(str(error))
        return await context.abort(code, problem)

    return answer


def _cut(problem: str) -> str:
    data = problem.encode(errors="replace")
    if len(data) <= _FIRST_BYTES + _LAST_BYTES:
        return problem
    first, last = (
        part.decode(errors="ignore") for part in (data[:_FIRST_BYTES], data[-_LAST_BYTES:])
    )
    return f"{first} … {last}"


def _writing_answers(behave: Callable[[Any, Any], Any]) -> Behaviour:
    """Return a behaviour that writes what a method yields; others write by themselves."""
    if not inspect.isasyncgenfunction(behave):
        return behave

    async def write(request: Any, context: Any) -> None:
        async with aclosing(behave(request, context)) as answers:
            async for each in answers:
                await context.write(each)

    return write
