"""What the training processes print.

Copied to the agent's output as it comes, and the last lines kept.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

TAIL_LINES = 20
TAIL_BYTES = 2048
_READ_BYTES = 65536
_MAX_UNENDED_BYTES = 65536
_write_lock = threading.Lock()
"""Held while lines are written, so that those of several processes are not mixed."""


class Tail:
    """The last lines of a stream of bytes, within a bound."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=TAIL_LINES)
        self._rest = b""

    def add(self, chunk: bytes) -> None:
        """Take the next bytes."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._lines.extend([line[-TAIL_BYTES:] for line in lines if line.strip()][-TAIL_LINES:])
        self._rest = rest[-TAIL_BYTES:]

    def text(self) -> str:
        """Return the last lines, as much of them as the bound allows."""
        lines = [*self._lines, self._rest] if self._rest.strip() else list(self._lines)
        return b"\n".join(lines[-TAIL_LINES:])[-TAIL_BYTES:].decode(errors="replace")


class LinePrefix:
    """Puts a prefix in front of each line of a stream of bytes, and holds a line back until its end has come."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._rest = b""

    def add(self, chunk: bytes) -> bytes:
        """Take the next bytes; return the complete lines, each with the prefix."""
        # The carriage return of a progress bar ends a line, too; the last one may be the first half
        # of "\r\n".
        lines = (self._rest + chunk).splitlines(keepends=True)
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        prefixed = [self._prefix + line for line in lines]
        if len(self._rest) > _MAX_UNENDED_BYTES:
            prefixed.append(self.finish())
        return b"".join(prefixed)

    def finish(self) -> bytes:
        """Return the line that has no end, if any, with one."""
        rest = self._rest
        self._rest = b""
        return self._prefix + rest + b"\n" if rest else b""


def copy_stream(
    source: int, target: int, *, prefix: bytes, on_chunk: Callable[[bytes], None]
) -> None:
    """Copy what can be read from a file descriptor to another one, until its end."""
    lines = LinePrefix(prefix)
    while chunk := os.read(source, _READ_BYTES):
        on_chunk(chunk)
        _write_all(target, lines.add(chunk) if prefix else chunk)
    _write_all(target, lines.finish())


def _write_all(target: int, data: bytes) -> None:
    try:
        with _write_lock:
            while data:
                data = data[os.write(target, data) :]
    except OSError:
        pass  # the agent's output is closed; the training goes on
