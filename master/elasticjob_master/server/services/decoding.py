"""Refuses bytes that cannot be decoded with INVALID_ARGUMENT.

Without this, grpc treats them as an error of the server: it answers UNKNOWN and logs a traceback
each time.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
from google.protobuf.message import DecodeError

Behaviour = Callable[[Any, Any], Awaitable[Any]]


def refusing_undecodable(handler: Any, method: str) -> Any:
    """Return a handler like this one that refuses bytes that cannot be decoded.

    A handler that reads its stream itself is returned unchanged.
    """
    read = handler.request_deserializer
    write = handler.response_serializer
    if handler.unary_unary is not None:
        return grpc.unary_unary_rpc_method_handler(
            _decoding(handler.unary_unary, read, method), response_serializer=write
        )
    if handler.unary_stream is not None:
        behave = _decoding(_writing_answers(handler.unary_stream), read, method)
        return grpc.unary_stream_rpc_method_handler(behave, response_serializer=write)
    if inspect.isasyncgenfunction(handler.stream_stream):
        behave = _with_decoding_errors(_writing_answers(handler.stream_stream), method)
        return grpc.stream_stream_rpc_method_handler(behave, read, write)
    return handler


def _decoding(behave: Behaviour, read: Callable[[bytes], Any], method: str) -> Behaviour:
    """Return a behaviour that decodes the request itself, so that it can refuse it."""

    async def answer(data: bytes, context: Any) -> Any:
        try:
            request = read(data)
        except DecodeError:
            return await _refuse(context, method)
        try:
            return await behave(request, context)
        except NotImplementedError:  # from the generated code of a method without an implementation
            problem = f"{method} is not served here"
            return await context.abort(grpc.StatusCode.UNIMPLEMENTED, problem)

    return answer


def _with_decoding_errors(behave: Behaviour, method: str) -> Behaviour:
    async def answer(requests: Any, context: Any) -> None:
        try:
            await behave(requests, context)
        except DecodeError:
            await _refuse(context, method)

    return answer


def _writing_answers(behave: Callable[[Any, Any], Any]) -> Behaviour:
    """Return a behaviour that writes what the method yields."""

    async def write(request: Any, context: Any) -> None:
        answers = behave(request, context)
        if not inspect.isasyncgen(answers):
            await answers  # the method writes its answers itself
            return
        async with aclosing(answers):
            async for each in answers:
                await context.write(each)

    return write


async def _refuse(context: Any, method: str) -> None:
    problem = f"these bytes are not a request of {method}"
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
