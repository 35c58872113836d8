"""A container's log: one file for each of its incarnations, each line with its time.

A line of the file is `TIME F|P TEXT`: F ends a line of the container, P is a part of a long one. A
file that has grown to `LIMIT` becomes the `.1` of the next, and the one before is dropped, as a
kubelet does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

log = logging.getLogger(__name__)
LIMIT = 16 * 1024 * 1024
_LONGEST = 16 * 1024
_LAST_LINES = 80


class ContainerLog:
    """The output of one incarnation, being written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.closed = False
        self._file = path.open("ab", buffering=0)
        self._size = self._file.tell()
        self._unfinished = b""
        self._readers: set[asyncio.Event] = set()

    def write(self, data: bytes) -> None:
        """Write output, in pieces of any size."""
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        now = _stamp(time.time_ns())
        out = [now + b" F " + line + b"\n" for line in lines]
        while len(self._unfinished) > _LONGEST:
            out.append(now + b" P " + self._unfinished[:_LONGEST] + b"\n")
            self._unfinished = self._unfinished[_LONGEST:]
        self._append(b"".join(out))

    def close(self) -> None:
        """Write the last unfinished line and end the readers."""
        if not self.closed:
            if self._unfinished:
                self._append(_stamp(time.time_ns()) + b" P " + self._unfinished + b"\n")
            self._file.close()
            self.closed = True
            self._wake()

    def _append(self, data: bytes) -> None:
        if not data:
            return
        if self._size > LIMIT:
            self._file.close()
            self.path.replace(_older(self.path))
            self._file = self.path.open("ab", buffering=0)
            self._size = 0
        try:
            self._size += self._file.write(data)
        except OSError as error:  # a full disk: the container continues, its output is lost
            log.warning("%s: output is lost: %s", self.path, error)
        self._wake()

    def _wake(self) -> None:
        for reader in self._readers:
            reader.set()

    async def follow(self, options: LogOptions) -> AsyncIterator[bytes]:
        """Yield the present output and then new output, until the container ends."""
        changed = asyncio.Event()
        self._readers.add(changed)
        lines = list(read_lines(self.path, options))
        file = self.path.open("rb")
        file.seek(0, os.SEEK_END)
        try:
            for line in lines:
                yield line
            while True:
                changed.clear()
                closed = self.closed
                if lines := file.readlines():
                    for line in lines:
                        yield _shown(line, options.timestamps)
                elif os.fstat(file.fileno()).st_ino != self.path.stat().st_ino:
                    file.close()
                    file = self.path.open("rb")
                elif closed:
                    return
                else:
                    await changed.wait()
        finally:
            file.close()
            self._readers.discard(changed)


@dataclass(frozen=True)
class LogOptions:
    """The part of a log to return, and its form, as in Kubernetes' PodLogOptions.

    `tail` is the number of lines at the end, and `since` the time of the first one, in seconds
    since the epoch; None for all.
    """

    tail: int | None = None
    since: float | None = None
    timestamps: bool = False


def read_lines(path: Path, options: LogOptions) -> Iterator[bytes]:
    """Yield the selected lines that are in the file now."""
    lines = _lines(path)
    if options.since is not None:
        since = _stamp(int(options.since * 1e9))
        lines = (line for line in lines if line.partition(b" ")[0] >= since)
    if options.tail is not None:
        lines = iter(_last_lines(lines, options.tail))
    return (_shown(line, options.timestamps) for line in lines)


def last_output(path: Path, *, size: int = 2048) -> str:
    """Return the end of a log, for `terminationMessagePolicy: FallbackToLogsOnError`."""
    return b"".join(read_lines(path, LogOptions(tail=_LAST_LINES)))[-size:].decode(errors="replace")


def _lines(path: Path) -> Iterator[bytes]:
    for part in (_older(path), path):
        if part.exists():
            with part.open("rb") as file:
                yield from file


def _last_lines(lines: Iterator[bytes], count: int) -> list[bytes]:
    kept: deque[list[bytes]] = deque(maxlen=count)
    whole: list[bytes] = []
    for line in lines:
        whole.append(line)
        if line.split(b" ", 2)[1] == b"F":
            kept.append(whole)
            whole = []
    if whole:
        kept.append(whole)
    return [line for group in kept for line in group]


def _shown(line: bytes, timestamps: bool) -> bytes:
    at, tag, text = line.split(b" ", 2)
    text = text if tag == b"F" else text[:-1]
    return at + b" " + text if timestamps else text


def _older(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def _stamp(nanoseconds: int) -> bytes:
    whole, part = divmod(nanoseconds, 1_000_000_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{part:09d}Z".encode()
