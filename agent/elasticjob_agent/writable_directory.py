"""Where the agent can write a small file. Standard library only."""

from __future__ import annotations

import tempfile

_ALWAYS_WRITABLE = "/dev/shm"  # noqa: S108 (what is made here is made for this user only)


def path() -> str:
    """Return a directory to write to: an image may have none, or its files may be read-only."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        return _ALWAYS_WRITABLE
