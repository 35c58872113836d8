"""Says whether this process can open a file, as each connection and each import needs one."""

from __future__ import annotations

import os
import resource


def raise_limit() -> None:
    """Allow as many open files as the hard limit does; a container begins with 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def problem() -> str:
    """Return why this process can open no file now; empty if it can."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return f"no file can be opened: {error.strerror}"
    return ""
