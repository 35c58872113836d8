"""Errors for users: each message names the object, the problem, and the remedy."""

from __future__ import annotations

from collections.abc import Sequence


class ClientError(Exception):
    """A request failed; the base class of all errors of the client."""


class NoCluster(ClientError):
    """There is no usable kubeconfig or service account."""


class WrongArgument(ClientError):
    """An argument of the caller is wrong in itself, whatever the cluster has."""


class NoSuchObject(ClientError):
    """There is no job, plan or request with this name."""


class NotAllowed(ClientError):
    """The user has no right to do this."""


class NameTaken(ClientError):
    """Another object has the name."""


class NoLogs(ClientError):
    """No chosen member has a log."""


class JobEnded(ClientError):
    """The job has ended without reaching the awaited phase or step."""


class NotInTime(ClientError):
    """The awaited change has not happened in time; it may still happen."""


class MasterUnavailable(ClientError):
    """The job has no master now: it has ended, or its master has not started yet."""


class MasterUnreachable(ClientError):
    """The master does not answer at its address."""


class Invalid(ClientError):
    """The API server refuses the fields of an object.

    Attributes:
        problems: a line for each field: its path, its value, and the bound or the remedy.
    """

    def __init__(self, what: str, problems: Sequence[str]) -> None:
        separator = " " if len(problems) == 1 else "\n  "
        super().__init__(f"{what} is refused:{separator}" + separator.join(problems))
        self.problems = tuple(problems)
