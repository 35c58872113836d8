"""A directory for the agent's own small files. Standard library only."""

from __future__ import annotations

import os
import tempfile

from elasticjob_api import names

_ALWAYS_WRITABLE = "/dev/shm"  # noqa: S108 (only this user can read what is created in it)

_MAX_FOR_SOCKETS = 70
"""Bytes of a path below which a folder with a socket finds room: the kernel takes 107 of a socket's
path.
"""


def path() -> str:
    """Return a writable directory.

    An image may have no /tmp, or its root file system may be read-only.
    """
    try:
        if chosen := os.environ.get(names.ENV_AGENT_FILES):
            return chosen
        return tempfile.gettempdir()
    except FileNotFoundError:
        return _ALWAYS_WRITABLE


def path_for_sockets() -> str:
    """Return the same, unless its path is too long for the sockets below it."""
    chosen = path()
    return chosen if len(os.fsencode(chosen)) <= _MAX_FOR_SOCKETS else _ALWAYS_WRITABLE
