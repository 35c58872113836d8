"""Sends messages to the agent."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from typing import Any

_PIPE_BYTES = 1 << 20


class Reporter:
    """Writes messages to the agent, and never waits for it."""

    def __init__(self, number: int, index: int | None) -> None:
        """Begin; `index`: of a process among those that torchrun starts, None for any other."""
        self._number = number
        self.index = index
        self._identity = _identity(number)
        self.is_open = True
        os.set_blocking(number, False)
        with contextlib.suppress(OSError):  # more than this user may have
            fcntl.fcntl(number, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def send(self, message: dict[str, Any]) -> None:
        if self.index is not None:
            message = {**message, "index": self.index}
        data = json.dumps(message).encode() + b"\n"
        # The program may have closed all descriptors, and opened a file with this number.
        if self.is_open and _identity(self._number) == self._identity:
            try:
                if os.write(self._number, data) == len(data):
                    return
            except OSError:
                pass
        self.is_open = False  # the agent has gone, or does not read

    def close(self) -> None:
        if self.is_open and _identity(self._number) == self._identity:
            os.close(self._number)
        self.is_open = False


def _identity(number: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino
