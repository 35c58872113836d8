"""The reasons for which a request of a member is refused.

Each message names field, value and bound. `server/services/errors.py` of the master maps each
reason to a gRPC status code.
"""

from __future__ import annotations


class BadRequest(Exception):
    """The request is invalid (INVALID_ARGUMENT)."""


class LimitReached(Exception):
    """A limit of a number or size is reached (RESOURCE_EXHAUSTED)."""


class NotCurrent(Exception):
    """The pod, process or round of the request has been replaced (FAILED_PRECONDITION)."""


class UnknownName(Exception):
    """Nothing has the name in the request (NOT_FOUND)."""


class DeclaredDifferently(Exception):
    """The name was declared before with other values (ALREADY_EXISTS)."""


class NotReadyYet(Exception):
    """A restarted master does not know enough yet; the caller must retry (UNAVAILABLE)."""
