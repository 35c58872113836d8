"""The reasons for which a request of a member is refused.

Each message names field, value and bound, for the caller.
The master's `server/services/errors.py` maps each of them to a gRPC status code.
"""

from __future__ import annotations


class BadRequest(Exception):
    """The request is invalid (INVALID_ARGUMENT)."""


class LimitReached(Exception):
    """A bound on the number or size of something is reached (RESOURCE_EXHAUSTED)."""


class NotCurrent(Exception):
    """The request is from or about a pod, process or round that has been superseded (FAILED_PRECONDITION)."""


class UnknownName(Exception):
    """There is nothing of the name in the request (NOT_FOUND)."""


class DeclaredDifferently(Exception):
    """The name was declared before with other values (ALREADY_EXISTS)."""


class NotReadyYet(Exception):
    """A restarted master does not know enough yet; the caller tries again (UNAVAILABLE)."""
