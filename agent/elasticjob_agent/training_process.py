"""One run of the training command: its output, its signals, its exit code, its last words.

The output is copied to the agent's output, and its last lines are kept. They say how the program
has failed. A launcher writes more after the program's last lines, and hides them: torchrun its own
traceback and a summary, a dying Python the tracebacks of the processes that it was about to start.
Torchrun also exits with 1 in place of the exit code of the process that failed first.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import IO

from elasticjob_api.last_words import TRACEBACK, cause
from elasticjob_processes.killing import kill_group, shell_code

from elasticjob_agent.start_failure import CannotStart

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


def _with_cause(lines: Sequence[str], code: int) -> str:
    """Return the last lines, after the one that says why the program has failed.

    That line stands in a traceback, from which everybody who reads the text knows it again.
    """
    last = shown(lines)
    first = cause("\n".join(lines), code)
    return last if cause(last, code) == first else f"{TRACEBACK}\n  …\n{first}\n{last}"


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


class TrainingProcess:
    """One run of a command."""

    def __init__(self, prefix: str, on_end: Callable[[TrainingProcess], None]) -> None:
        """Prepare to run it, with a prefix before each line that it prints.

        With an empty one the process inherits the standard output of the agent.
        """
        self.prefix = prefix
        self.code = 0
        """Its exit code as a shell reports it (128 + signal), when it has exited."""
        self.has_ended = False
        self._on_end = on_end
        self._pid = 0
        self._popen: subprocess.Popen[bytes] | None = None
        self._tail = Tail()
        self._problem = ""
        self._threads: list[threading.Thread] = []

    def failure(self) -> tuple[int, str]:
        """Return the exit code and the last lines of standard error of the program.

        They are not those of a launcher such as torchrun, which has started it. The lines say why,
        if it could not be started.
        """
        code, lines = of_program(self.code, self._tail.lines())
        text = self._problem or _with_cause(lines, code)
        if not text:
            return code, ""
        return code, "\n".join(self.prefix + line for line in text.split("\n"))

    def last_lines(self) -> list[str]:
        """Return the kept lines of standard error, also those of a launcher."""
        return self._tail.lines()

    def started(self, popen: subprocess.Popen[bytes]) -> None:
        """Take over a started process whose standard error, at least, is a pipe."""
        self._pid = popen.pid
        self._popen = popen
        self._start_copying(popen.stderr, 2, keep=self._tail.add)
        self._start_copying(popen.stdout, 1, keep=_forget)

    def not_started(self, failure: CannotStart) -> None:
        """Record a failure to start as the end of the process."""
        sys.stderr.write(f"{self.prefix}{failure}\n")
        self._problem = str(failure)
        self._end(failure.code)

    def ended(self, code: int) -> None:
        """Record the exit code of the reaped process."""
        if self._popen is not None:
            self._popen.returncode = code
        self._end(shell_code(code))

    @property
    def pid(self) -> int:
        """Its process id; 0 if it has ended or could not be started."""
        return 0 if self.has_ended else self._pid

    def wait_for_output(self, seconds: float) -> None:
        """Block at most `seconds` until its output is copied.

        A process that it has left running may keep the pipe open.
        """
        for thread in self._threads:
            thread.join(seconds)

    def signal(self, number: int) -> None:
        """Send a signal to the process alone."""
        if not self.has_ended:
            os.kill(self._pid, number)

    def terminate(self) -> None:
        """Send SIGTERM to the process and its process group."""
        if not self.has_ended:
            os.killpg(self._pid, signal.SIGTERM)

    def kill_group(self) -> None:
        """Kill its process group, also processes that it has left there."""
        if self._pid:
            kill_group(self._pid)

    def _end(self, code: int) -> None:
        self.code = code
        self.has_ended = True
        self._on_end(self)

    def _start_copying(
        self, pipe: IO[bytes] | None, target: int, *, keep: Callable[[bytes], None]
    ) -> None:
        if pipe is not None:
            thread = threading.Thread(target=self._copy, args=(pipe, target, keep), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _copy(self, pipe: IO[bytes], target: int, keep: Callable[[bytes], None]) -> None:
        copy_stream(pipe.fileno(), target, prefix=self.prefix.encode(), on_chunk=keep)
        pipe.close()


def _forget(_chunk: bytes) -> None:
    """Keep nothing: last words come from standard error alone."""


_TORCHRUN_REPORTS = re.compile(
    r"failed \(exitcode: (-?\d{1,3})\) local_rank: \d+ \(pid: \d+\) of binary: "
)
_TORCHRUN_ENDS_OTHERS = re.compile(r"Sending process \d+ closing signal SIG[A-Z]+$")
_TORCHRUNS_CODE = 1

_TRACEBACK = "Traceback (most recent call last):"
_STARTED_BY_PYTHON = '  File "<string>", line 1, in <module>'
_PARENT_HAS_ENDED = "FileNotFoundError: [Errno 2] No such file or directory"
"""Without a file's name: a semaphore of the parent process, which has ended."""


def of_program(code: int, lines: Sequence[str]) -> tuple[int, list[str]]:
    """Return the exit code and the last lines of the program that a launcher has started.

    The exit codes are as a shell reports them. If only torchrun has written lines, for example
    because the program's output goes to a file, all of them are returned, with its report of the
    failed process at the end.
    """
    own = list(lines)
    reports = [(_TORCHRUN_REPORTS.search(line), at) for at, line in enumerate(lines)]
    if code == _TORCHRUNS_CODE and (found := [each for each in reports if each[0]]):
        report, at = found[-1]
        assert report is not None
        code = shell_code(int(report[1])) or code
        own = [line for line in lines[:at] if not _TORCHRUN_ENDS_OTHERS.search(line)]
        if not own:
            own = [*lines[at + 1 :], lines[at]]
    own = list(_without_orphans(own))
    return code, own or list(lines)


def _without_orphans(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines without tracebacks of processes whose parent ended during their start."""
    held: list[str] = []
    for line in lines:
        if line == _TRACEBACK:
            yield from held
            held = [line]
        elif not held:
            yield line
        elif len(held) == 1 and line != _STARTED_BY_PYTHON:
            yield from (*held, line)
            held = []
        elif line.startswith(" "):
            held.append(line)
        else:
            if line != _PARENT_HAS_ENDED:
                yield from (*held, line)
            held = []
    yield from held
