"""Prints the lines of all workers, each after its rank, and the run's own messages."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

RECORD = "output"
"""The file of a run's folder with the lines that it has printed."""
MOST_RECORDED_BYTES = 16 << 20
"""Beyond them the record begins again."""
_READ_BYTES = 65_536
_MOST_LINE_BYTES = 262_144
_AGENT = b"elasticjob-agent: "
_ENDS = (b"\n", b"\r")
"""What ends a line; a carriage return ends the state of a progress bar, which the next replaces."""
_RANK = re.compile(rb"\[(\d+)\] ")
_COLOURS = (36, 33, 32, 35, 34, 31)


class Output:
    """The two streams of the command, coloured where they are terminals."""

    def __init__(self, folder: Path, *, on_closed: Callable[[], None]) -> None:
        """Prepare.

        Args:
            folder: the run's; the lines are also recorded there, for `elasticjob logs`.
            on_closed: is called when the reader of a stream has closed it.
        """
        self._record = (folder / RECORD).open("ab", buffering=0)
        self._on_closed = on_closed
        self._closed: set[bool] = set()
        self._colours = {
            stream: stream.isatty() and not os.environ.get("NO_COLOR")
            for stream in (sys.stdout, sys.stderr)
        }

    async def copy(
        self, reader: asyncio.StreamReader, worker: int, *, to_stderr: bool, at_once: bool = False
    ) -> None:
        """Copy a worker's output until its end: by lines, and by the states of a progress bar.

        `at_once`: also copy the beginning of a line, such as a question.
        """
        rest = b""
        while chunk := await reader.read(_READ_BYTES):
            lines = (rest + chunk).splitlines(keepends=True)
            rest = b"" if lines[-1].endswith(_ENDS) else lines.pop()
            if len(rest) > _MOST_LINE_BYTES:
                lines.append(rest + b"\n")
                rest = b""
            elif at_once and not _AGENT.startswith(rest[: len(_AGENT)]):
                lines.append(rest)
                rest = b""
            self._write(
                b"".join(self._line(line, worker, to_stderr=to_stderr) for line in lines),
                to_stderr=to_stderr,
            )
        if rest:
            self._write(self._line(rest + b"\n", worker, to_stderr=to_stderr), to_stderr=to_stderr)

    def say(self, text: str) -> None:
        """Print a message of the run itself to stderr."""
        line = f"elasticjob: {text}\n"
        self._keep(line.encode())
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
        self._keep(line)
        stream = sys.stderr if to_stderr else sys.stdout
        text = line.rstrip(b"\r\n")
        if text and stream.isatty():  # the line may replace the state of a longer bar
            line = b"%s\x1b[K%s" % (text, line[len(text) :])
        return coloured_rank(line) if self._colours[stream] else line

    def _keep(self, line: bytes) -> None:
        """Record a line; not the states of a progress bar."""
        if not line.endswith(b"\n"):
            return
        with suppress(OSError):  # such as a full disk: the training continues
            if self._record.tell() > MOST_RECORDED_BYTES:
                self._record.truncate(0)
            self._record.write(line)

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


def reads_input() -> bool:
    """Return whether this command may read its input: not in the background of a terminal."""
    if sys.stdin is None or sys.stdin.closed:
        return False
    with suppress(OSError):
        if sys.stdin.isatty():
            return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
        return True
    return False


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
