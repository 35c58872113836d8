"""A directory for the agent's own small files. Standard library only."""

from __future__ import annotations

import os
import tempfile

from elasticjob_api import names

_ALWAYS_WRITABLE = "/dev/shm"  # noqa: S108 (only this user can read what is created in it)


def path() -> str:
    """Return a writable directory: an image may have no /tmp, or its root file system may be read-only."""
    try:
        if chosen := os.environ.get(names.ENV_AGENT_FILES):
            return chosen
        return tempfile.gettempdir()
    except FileNotFoundError:
        return _ALWAYS_WRITABLE
