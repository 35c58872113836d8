"""Follows the aiohttp sessions of the test process, to find the test that does not close its own.

A session that is left open is part of a cycle of references, so its warning comes later, in the
test that runs when the garbage is collected.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from contextlib import suppress
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp

_Sessions = frozenset[aiohttp.ClientSession]
_made: WeakKeyDictionary[aiohttp.ClientSession, traceback.StackSummary] = WeakKeyDictionary()


def follow_sessions() -> None:
    """Record every session that is made from now on."""
    make = aiohttp.ClientSession.__init__

    @wraps(make)
    def recorded(session: aiohttp.ClientSession, *args: Any, **options: Any) -> None:
        make(session, *args, **options)
        _made[session] = traceback.extract_stack(limit=8)

    setattr(aiohttp.ClientSession, "__init__", recorded)  # noqa: B010  # mypy forbids it otherwise


def open_sessions() -> _Sessions:
    """Return the recorded sessions that are not closed."""
    return frozenset(session for session in _made if not session.closed)


def close(sessions: Iterable[aiohttp.ClientSession]) -> str:
    """Close sessions outside of their event loops; return where they were made."""
    places = []
    for session in sessions:
        places.append("".join(traceback.format_list(list(_made[session]))))
        connector = session.connector
        session.detach()
        if connector is not None:
            with suppress(RuntimeError):  # its event loop has ended
                connector._close(abort_ssl=True)
    return "\n".join(places)
