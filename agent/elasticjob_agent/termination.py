"""Writes the container's termination message.

`kubectl describe pod` shows it, and the operator copies it into the job's status.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from elasticjob_api import names

DEFAULT_PATH = "/dev/termination-log"
LIMIT = 4096
"""The kubelet's limit, in bytes."""


def write(environment: Mapping[str, str], message: str) -> None:
    """Write a message to the file that the kubelet reads, if there is such a file."""
    configured = environment.get(names.ENV_TERMINATION_LOG)
    path = Path(configured or DEFAULT_PATH)
    if not message or (configured is None and not (path.exists() and os.access(path, os.W_OK))):
        return
    try:
        path.write_bytes(message.encode()[-LIMIT:])
    except OSError:
        return  # a message is not worth a different exit code
