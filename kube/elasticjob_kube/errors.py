"""Errors of the API server by what a caller can do about them (docs/guarantees.md, 7).

A caller decides by class, never by status code: not found, conflict, refused, or try later. No
error is turned into an empty answer.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """One of the things that are wrong with a refused object.

    A field, and what is wrong with its value.
    """

    field: str
    message: str


class NoAccess(Exception):
    """No usable configuration.

    The API server's address, its certificate authority or the credentials are missing.
    """


class KubeError(Exception):
    """An answer of the API server that is not success.

    Attributes:
        status: HTTP status code; 0 when no answer came.
        reason: the machine-readable `reason` of the `Status` object, such as `AlreadyExists`; may be empty.
        message: the server's text; it names the field, the value and the bound where the server knows them.
        causes: the same field by field; empty where the server does not tell them apart.
    """

    causes: tuple[Cause, ...] = ()

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class NotFound(KubeError):
    """404: the object, or its kind, is not there."""


class Conflict(KubeError):
    """409: the object has changed since it was read; read it again and decide again."""


class AlreadyExists(Conflict):
    """409 of a create: an object of this name exists, perhaps another owner's.

    Compare owner UIDs.
    """


class Refused(KubeError):
    """400, 401, 403, 405, 413, 415, 422.

    The same request will be refused again until something else changes.
    """


class TryLater(KubeError):
    """429, 5xx, a broken connection or a time-out.

    It is not known whether the request was carried out.

    Attributes:
        retry_after: seconds the server asked to wait; None when it did not say.
    """

    def __init__(
        self, status: int, reason: str, message: str, retry_after: float | None = None
    ) -> None:
        super().__init__(status, reason, message)
        self.retry_after = retry_after


class Expired(TryLater):
    """410, or an `Expired` watch event: the resource version is too old; list again."""


def error_from(
    status: int, reason: str, message: str, retry_after: float | None = None
) -> KubeError:
    """Return the error that an HTTP status (an integer, 400 or more) and a `Status` reason stand for."""
    if status == 404:
        return NotFound(status, reason, message)
    if status == 409:
        return (AlreadyExists if reason == "AlreadyExists" else Conflict)(status, reason, message)
    if status == 410:
        return Expired(status, reason, message)
    if status in (408, 429) or status >= 500:
        return TryLater(status, reason, message, retry_after)
    return Refused(status, reason, message)
