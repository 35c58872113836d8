"""One run of the training command: its output, its signals, its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO

from elasticjob_processes.killing import kill_group, shell_code

from elasticjob_agent import last_words
from elasticjob_agent.output import Tail, copy_stream, shown
from elasticjob_agent.start_failure import CannotStart


class TrainingProcess:
    """One run of a command."""

    def __init__(self, prefix: str, on_end: Callable[[TrainingProcess], None]) -> None:
        """Prepare to run it.

        Args:
            prefix: written before each line that it prints; if empty, the process inherits the
                standard output of the agent.
            on_end: called when it has exited.
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
        code, lines = last_words.of_program(self.code, self._tail.lines())
        text = self._problem or shown(lines)
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
