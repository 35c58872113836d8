"""A directory for the agent's own small files. Standard library only."""

from __future__ import annotations

import tempfile

_ALWAYS_WRITABLE = "/dev/shm"  # noqa: S108 (only this user can read what is created in it)


def path() -> str:
    """Return a writable directory: an image may have no /tmp, or its root file system may be read-only."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        return _ALWAYS_WRITABLE
