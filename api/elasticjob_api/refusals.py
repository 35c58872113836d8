"""Why a request of a member is refused. Each text is read by its caller: it names the field, the value and the bound.

`services.errors` has the status with which each of them is answered.
"""

from __future__ import annotations


class BadRequest(Exception):
    """A request that makes no sense."""


class LimitReached(Exception):
    """There is no room for more."""


class NotCurrent(Exception):
    """A request of, or about, a process or a world that has no say any more."""


class UnknownName(Exception):
    """What the request is about is not there."""


class DeclaredDifferently(Exception):
    """What was declared before is declared otherwise."""


class NotReadyYet(Exception):
    """A master that has just restarted has not been told enough: the caller tries again."""
