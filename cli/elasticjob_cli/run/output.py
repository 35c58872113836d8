"""Prints the lines of all workers, each after its rank, and the run's own messages."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable
from typing import BinaryIO

_READ_BYTES = 65_536
_MOST_LINE_BYTES = 262_144
_AGENT = b"elasticjob-agent: "
_RANK = re.compile(rb"\[(\d+)\] ")
_COLOURS = (36, 33, 32, 35, 34, 31)


class Output:
    """The two streams of the command, coloured where they are terminals."""

    def __init__(self, *, on_closed: Callable[[], None]) -> None:
        """Prepare; `on_closed` is called when the reader of a stream has closed it."""
        self._on_closed = on_closed
        self._closed: set[bool] = set()
        self._colours = {
            stream: stream.isatty() and not os.environ.get("NO_COLOR")
            for stream in (sys.stdout, sys.stderr)
        }

    async def copy(self, reader: asyncio.StreamReader, worker: int, *, to_stderr: bool) -> None:
        """Copy a worker's output line by line until its end."""
        rest = b""
        while chunk := await reader.read(_READ_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _MOST_LINE_BYTES:
                lines = [*lines, rest]
                rest = b""
            self._write(
                b"".join(self._line(line, worker, to_stderr=to_stderr) for line in lines),
                to_stderr=to_stderr,
            )
        if rest:
            self._write(self._line(rest, worker, to_stderr=to_stderr), to_stderr=to_stderr)

    def say(self, text: str) -> None:
        """Print a message of the run itself to stderr."""
        line = f"elasticjob: {text}\n"
        if self._colours[sys.stderr]:
            line = f"\x1b[1m{line[:-1]}\x1b[0m\n"
        self._write(line.encode(), to_stderr=True)

    def note(self, text: str) -> None:
        """Print a message only if stderr is a terminal."""
        if sys.stderr.isatty():
            self.say(text)

    def _line(self, line: bytes, worker: int, *, to_stderr: bool) -> bytes:
        if line.startswith(_AGENT):  # the agent itself has no rank
            line = b"elasticjob: worker %d: %s" % (worker, line[len(_AGENT) :])
        coloured = self._colours[sys.stderr if to_stderr else sys.stdout]
        return (coloured_rank(line) if coloured else line) + b"\n"

    def _write(self, data: bytes, *, to_stderr: bool) -> None:
        if to_stderr in self._closed:
            return
        target: BinaryIO = (sys.stderr if to_stderr else sys.stdout).buffer
        try:
            target.write(data)
            target.flush()
        except BrokenPipeError:
            self._closed.add(to_stderr)
            if len(self._closed) == 1:
                self._on_closed()


def rank_of(last_words: str) -> int | None:
    """Return the rank before the first of some lines; None if there is none."""
    match = _RANK.match(last_words.encode())
    return None if match is None else int(match[1])


def coloured_rank(line: bytes) -> bytes:
    """Return a line with its rank in colour."""
    match = _RANK.match(line)
    if match is None:
        return line
    colour = _COLOURS[int(match[1]) % len(_COLOURS)]
    return b"\x1b[%dm%s\x1b[0m%s" % (colour, match[0], line[match.end() :])
