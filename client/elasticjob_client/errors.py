"""Errors as users read them: each says what happened to which object, and what to do."""

from __future__ import annotations


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
