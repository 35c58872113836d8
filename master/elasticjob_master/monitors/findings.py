"""The findings of a monitor. Only the controller acts on them."""

from __future__ import annotations

from typing import NamedTuple


class NewEvent(NamedTuple):
    """Something that has happened, to be recorded in the history.

    Attributes:
        reason: in CamelCase; docs/queries.md lists all of them.
        message: for people.
    """

    reason: str
    message: str
