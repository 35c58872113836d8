"""Errors of the API server, classified by what a caller can do about them (docs/guarantees.md, 7).

A caller decides by class, never by status code. No error is turned into an empty answer.
"""

from __future__ import annotations

import msgspec


class Cause(msgspec.Struct, frozen=True):
    """One reason for which an object was refused: a field, and what is wrong with its value."""

    field: str = ""
    message: str = ""


class NoAccess(Exception):
    """The API server's address, its certificate authority or the credentials are missing."""


class KubeError(Exception):
    """A request that did not succeed.

    Attributes:
        status: HTTP status code; 0 if no answer came.
        reason: the `reason` of the `Status` object, such as `AlreadyExists`; may be empty.
        message: the server's text; for an invalid object it names field, value and bound.
        causes: the same field by field; empty if the server does not list them.
    """

    causes: tuple[Cause, ...] = ()

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


class NotFound(KubeError):
    """404: the object, or its kind, does not exist."""


class Conflict(KubeError):
    """409: the object has changed since it was read. Read it and decide again."""


class AlreadyExists(Conflict):
    """409 of a create: an object of this name exists. It may have another owner: compare UIDs."""


class Refused(KubeError):
    """Any other 4xx: the same request will be refused again until something else changes."""


class Forbidden(Refused):
    """403: the user may not do it."""


class TooLarge(KubeError):
    """A successful answer with more bytes than its reader takes."""


class TryLater(KubeError):
    """408, 429, 5xx, a broken connection or a time-out: the request may have been executed or not.

    Attributes:
        retry_after: seconds that the server asked to wait; None if it did not.
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
    """Return the error for an HTTP status of 400 or more and the reason of a `Status`."""
    if status == 403:
        return Forbidden(status, reason, message)
    if status == 404:
        return NotFound(status, reason, message)
    if status == 409:
        if reason == "AlreadyExists":
            return AlreadyExists(status, reason, message)
        return Conflict(status, reason, message)
    if status == 410:
        return Expired(status, reason, message)
    if status in (408, 429) or status >= 500:
        return TryLater(status, reason, message, retry_after)
    return Refused(status, reason, message)
