"""Decodes the API server's answers: objects, errors, and the events of a watch.

A value that no decoder can read is cut out of its object (`salvage`), so that one object of a list
or watch does not affect the others.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
from elasticjob_api.meta import Json

from elasticjob_kube.errors import Cause, Expired, KubeError, Refused, TryLater, error_from
from elasticjob_kube.salvage import cut
from elasticjob_kube.transport import Response

UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of msgspec for JSON that it cannot decode."""
_SHOWN_ANSWER_BYTES = 100
_SHOWN_ERROR_BYTES = 500
"""If an answer is not JSON, the error's message shows this many bytes of it."""


class WatchEvent(msgspec.Struct):
    """One line of a watch: `type` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.

    `object` is undecoded JSON.
    """

    type: str
    object: msgspec.Raw


class _Details(msgspec.Struct):
    causes: tuple[Cause, ...] | None = None


class _Status(msgspec.Struct):
    """The fields of a `Status` object that errors are made from."""

    reason: str = ""
    message: str = ""
    details: _Details | None = None
    code: int = 500


_EVENT = msgspec.json.Decoder(WatchEvent)


def decode_object(data: bytes) -> Json:
    """Return an answer that is one object. Raises as `decode`."""
    decoded: Json = decode(data, dict[str, Any])
    return decoded


def decode(data: bytes, as_type: Any) -> Any:
    """Return an answer as a type.

    Raises:
        ValidationError: it is JSON, but does not fit the type.
        Refused: it is nested too deeply to be decoded.
        TryLater: it is not JSON, so a proxy may have sent it.
    """
    try:
        return msgspec.json.decode(data, type=as_type)
    except msgspec.ValidationError:
        raise
    except RecursionError as error:
        message = "the object cannot be read: it is nested too deeply"
        raise Refused(0, "Unreadable", message) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        start = data[:_SHOWN_ANSWER_BYTES].decode(errors="replace")
        raise TryLater(0, "NotJson", f"the answer is not the API server's: {start!r}") from error


async def decode_list(data: bytes, as_type: Any) -> Any:
    """Return the answer to a list as a type, without the values that cannot be decoded."""
    with suppress(*UNDECODABLE):
        return msgspec.json.decode(data, type=as_type)
    return decode(await asyncio.to_thread(cut, data), as_type)


async def decode_event(line: bytes) -> WatchEvent:
    """Return a line of a watch as an event, without the values that cannot be decoded.

    Raises:
        KubeError: it is an ERROR event; `Expired` if the resource version is too old.
        DecodeError: it is not an event.
    """
    try:
        event = _EVENT.decode(line)
    except UNDECODABLE:
        event = _EVENT.decode(await asyncio.to_thread(cut, line))
    if event.type == "ERROR":
        status = msgspec.json.decode(event.object, type=_Status)
        if status.reason in ("Expired", "Gone"):
            raise Expired(410, status.reason, status.message)
        raise error_from(status.code, status.reason, status.message)
    return event


def answer_error(response: Response, data: bytes) -> KubeError:
    """Return the error that an answer with a status of 400 or more stands for."""
    try:
        status = msgspec.json.decode(data, type=_Status)
    except UNDECODABLE:
        status = _Status(message=data[:_SHOWN_ERROR_BYTES].decode(errors="replace"))
    wait = response.headers.get("Retry-After", "")
    retry_after = float(wait) if wait.isdigit() else None
    message = status.message or f"the API server answered {response.status} {response.reason}"
    error = error_from(response.status, status.reason, message, retry_after)
    if status.details is not None:
        error.causes = status.details.causes or ()
    return error


def no_answer(method: str, path: str, error: BaseException) -> TryLater:
    """Return the error for a request that no answer came to."""
    kind = type(error).__name__
    message = f"{method} {path}: no answer from the API server: {error or kind}"
    return TryLater(0, kind, message)
