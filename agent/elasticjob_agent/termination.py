"""The termination message: what `kubectl describe pod` shows of the end, and what the operator tells the user."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from elasticjob_api import names

DEFAULT_PATH = "/dev/termination-log"
LIMIT = 4096
"""Bytes the kubelet takes."""


def write(environment: Mapping[str, str], message: str) -> None:
    """Leave a message where the kubelet looks for it; without such a file the last log lines have to do."""
    told = environment.get(names.ENV_TERMINATION_LOG)
    path = Path(told or DEFAULT_PATH)
    if not message or (told is None and not (path.exists() and os.access(path, os.W_OK))):
        return
    try:
        path.write_bytes(message.encode()[-LIMIT:])
    except OSError:
        return  # a message is not worth a different exit code
