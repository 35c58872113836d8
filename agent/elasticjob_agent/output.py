"""Copies the output of training processes to the agent's output, and keeps the last lines."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence

TAIL_LINES = 20
TAIL_BYTES = 2048
_KEPT_LINES = 200
"""More than are shown, because a launcher writes its own lines after those of the program."""
_READ_BYTES = 65536
_MAX_UNENDED_BYTES = 65536
_write_lock = threading.Lock()
"""Held while lines are written, so that lines of several processes are not mixed."""


class Tail:
    """The last lines of a stream of bytes, within a bound."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self._rest = b""

    def add(self, chunk: bytes) -> None:
        """Take the next bytes."""
        *lines, rest = (self._rest + chunk).split(b"\n")
        self._lines.extend([line[-TAIL_BYTES:] for line in lines if line.strip()][-_KEPT_LINES:])
        self._rest = rest[-TAIL_BYTES:]

    def lines(self) -> list[str]:
        """Return the kept lines."""
        lines = [*self._lines, self._rest] if self._rest.strip() else list(self._lines)
        return [line.decode(errors="replace") for line in lines]


def shown(lines: Sequence[str]) -> str:
    """Return the last of some lines, as many as are reported."""
    text = "\n".join(lines[-TAIL_LINES:])
    return text.encode(errors="replace")[-TAIL_BYTES:].decode(errors="replace")


class LinePrefix:
    """Puts a prefix before each line of a stream, and holds a line back until its end."""

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._rest = b""

    def add(self, chunk: bytes) -> bytes:
        """Take the next bytes; return the complete lines, each with the prefix."""
        # The carriage return of a progress bar ends a line; the last may be half of "\r\n".
        lines = (self._rest + chunk).splitlines(keepends=True)
        self._rest = lines.pop() if lines and not lines[-1].endswith(b"\n") else b""
        prefixed = [self._prefix + line for line in lines]
        if len(self._rest) > _MAX_UNENDED_BYTES:
            prefixed.append(self.finish())
        return b"".join(prefixed)

    def finish(self) -> bytes:
        """Return the unfinished last line, if any, with an end."""
        rest = self._rest
        self._rest = b""
        return self._prefix + rest + b"\n" if rest else b""


def copy_stream(
    source: int, target: int, *, prefix: bytes, on_chunk: Callable[[bytes], None]
) -> None:
    """Copy one file descriptor to another until its end."""
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
        pass  # the agent's output is closed; the training continues
