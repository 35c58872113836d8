"""Errors as users read them: each says what happened to which object, and what to do."""

from __future__ import annotations

from collections.abc import Sequence


class ClientError(Exception):
    """What was asked for was not done."""


class NoSuchObject(ClientError):
    """There is no job, plan or request of this name."""


class JobEnded(ClientError):
    """The job has ended, so what was waited for does not come any more."""


class NotInTime(ClientError):
    """What was waited for has not come in time; it may still come."""


class MasterUnavailable(ClientError):
    """The job has no master now: it has ended, or its master has not started yet."""


class MasterUnreachable(ClientError):
    """The master does not answer at its address."""


class Invalid(ClientError):
    """The API server refuses an object for what its fields have.

    Attributes:
        problems: a line for each field: its path, its value, and the bound or what to do.
    """

    def __init__(self, what: str, problems: Sequence[str]) -> None:
        separator = " " if len(problems) == 1 else "\n  "
        super().__init__(f"{what} is refused:{separator}" + separator.join(problems))
        self.problems = tuple(problems)
