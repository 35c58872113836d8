"""The training processes of one member.

CMD once for each, in a session of its own, with everything it starts. The agent is the container's
first process, so it also reaps orphaned processes.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from elasticjob_api import names
from elasticjob_api.references import TooLongError
from elasticjob_processes.exec_child import cannot_start_code, dying_with_parent
from elasticjob_processes.killing import kill_descendants, kill_group, shell_code
from elasticjob_processes.reaper import ChildReaper

from elasticjob_agent.output import Tail, copy_stream
from elasticjob_agent.process_environment import MAX_ARG_STRLEN, render

_OUTPUT_SECONDS = 0.5


class CannotStart(Exception):
    """No process can be started. `code`: the exit code of the container, as if it were CMD's.

    126 when another attempt cannot succeed; 71 when the node is short of memory or processes, which
    may be temporary.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ProcessSupervisor:
    """Starts CMD and reaps every child."""

    def __init__(self, command: Sequence[str], container: Mapping[str, str]) -> None:
        """Remember the command and the container's environment; nothing is started."""
        self._command = list(command)
        self._container = container
        self._reaper = ChildReaper()

    def start(
        self, variables: Sequence[Mapping[str, str]], *, first_rank: int = 0
    ) -> TrainingProcesses:
        """Start CMD for adjacent ranks, each with variables of its own beside the container's.

        A command that cannot be run ends with code 127 or 126, as in a shell, and so does a process
        that cannot even be started.
        """
        started = TrainingProcesses()
        for rank, of_rank in enumerate(variables, start=first_rank):
            prefix = (
                f"[{rank}] "
                if len(variables) > 1 or names.ENV_RANK_PREFIX in self._container
                else ""
            )
            self._start(started.add(prefix), of_rank)
        return started

    def _start(self, process: TrainingProcess, variables: Mapping[str, str]) -> None:
        try:
            command, environment = render(self._command, self._container, variables)
        except TooLongError as error:
            process.not_started(
                CannotStart(126, f"elasticjob-agent: cannot run {self._command[0]!r}: {error}")
            )
        else:
            self.start_beside(process, command, environment)

    def start_beside(
        self, process: TrainingProcess, command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        """Start any command as a process, in a session of its own; the agent reaps it."""
        try:
            popen = subprocess.Popen(  # the reaper waits for it
                dying_with_parent([*command]),
                env=environment,
                stdout=subprocess.PIPE if process.prefix else None,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            process.not_started(_cannot_start(error, command, environment))
        else:
            process.started(popen)
            self._reaper.watch(popen.pid, process.ended)


class TrainingProcesses:
    """The runs of CMD of one member in one world, by rank."""

    def __init__(self) -> None:
        self._processes: list[TrainingProcess] = []
        self._failed: TrainingProcess | None = None
        self.failed_at: float | None = None
        """When the first one has failed, by the monotonic clock."""
        self._one_has_ended = asyncio.Event()

    def add(self, prefix: str) -> TrainingProcess:
        """Add one that is about to be started."""
        self._processes.append(TrainingProcess(prefix, self._ended))
        return self._processes[-1]

    async def failure(self) -> bool:
        """Wait until one has failed or all have exited with code 0.

        Return whether one has failed.
        """
        while self._failed is None and not self._all_have_ended:
            self._one_has_ended.clear()
            await self._one_has_ended.wait()
        return self._failed is not None

    async def wait(self) -> tuple[int, str]:
        """Wait until all have exited, with all their descendants.

        Returns the exit code as a shell reports it (128 + signal), and the last lines of standard
        error: of the first one that has failed, else of the one with the lowest rank.
        """
        while not self._all_have_ended:
            self._one_has_ended.clear()
            await self._one_has_ended.wait()
        await _kill_leftovers()
        for process in self._processes:
            await asyncio.to_thread(process.wait_for_output, _OUTPUT_SECONDS)
        shown = self._failed or self._processes[0]
        return shown.code, shown.last_words

    @property
    def _all_have_ended(self) -> bool:
        return all(process.has_ended for process in self._processes)

    def _ended(self, process: TrainingProcess) -> None:
        if process.code != 0 and self._failed is None:
            self._failed, self.failed_at = process, time.monotonic()
        self._one_has_ended.set()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._processes)

    def signal(self, number: int) -> None:
        """Send a signal to each CMD alone."""
        for process in self._processes:
            process.signal(number)

    def terminate(self) -> None:
        """Send SIGTERM to each CMD and what it has started.

        A shell in between would not pass it on.
        """
        for process in self._processes:
            process.terminate()

    def kill(self) -> None:
        """Kill each CMD and all descendants of the agent, in whatever process group or session they are."""
        for process in self._processes:
            process.signal(signal.SIGKILL)
        kill_descendants()


class TrainingProcess:
    """One run of CMD."""

    def __init__(self, prefix: str, on_end: Callable[[TrainingProcess], None]) -> None:
        """Prepare to run it.

        Args:
            prefix: in front of each line that it prints; empty: its standard output is the agent's.
            on_end: called when it has exited.
        """
        self.prefix = prefix
        self.code = 0
        """As a shell reports it (128 + signal), when it has exited."""
        self.has_ended = False
        self._on_end = on_end
        self._pid = 0
        self._popen: subprocess.Popen[bytes] | None = None
        self._tail = Tail()
        self._problem = ""
        self._threads: list[threading.Thread] = []

    @property
    def last_words(self) -> str:
        """The last lines of its standard error, or why it could not be started."""
        text = self._problem or self._tail.text()
        return "\n".join(self.prefix + line for line in text.split("\n")) if text else ""

    def started(self, popen: subprocess.Popen[bytes]) -> None:
        """Take over a started process whose standard error, at least, is a pipe."""
        self._pid = popen.pid
        self._popen = popen
        for name, pipe, target in (
            ("stderr", popen.stderr, sys.__stderr__),
            ("stdout", popen.stdout, sys.__stdout__),
        ):
            if pipe is not None:
                number = target.fileno() if target else {"stdout": 1, "stderr": 2}[name]
                thread = threading.Thread(
                    target=self._copy, args=(pipe, number, name), name=name, daemon=True
                )
                thread.start()
                self._threads.append(thread)

    def not_started(self, failure: CannotStart) -> None:
        """Record that there is not even a process; as if it had ended."""
        sys.stderr.write(f"{self.prefix}{failure}\n")
        self._problem = str(failure)
        self._end(failure.code)

    def ended(self, code: int) -> None:
        """Record the exit code, which was found when the process was reaped."""
        if self._popen is not None:
            self._popen.returncode = code
        self._end(shell_code(code))

    def wait_for_output(self, seconds: float) -> None:
        """Block until its output is copied, at most so long.

        What it has left running may keep the pipe open.
        """
        for thread in self._threads:
            thread.join(seconds)

    def signal(self, number: int) -> None:
        """Send a signal to CMD alone."""
        if not self.has_ended:
            os.kill(self._pid, number)

    def terminate(self) -> None:
        """Send SIGTERM to CMD and what it has started."""
        if not self.has_ended:
            os.killpg(self._pid, signal.SIGTERM)

    def kill_group(self) -> None:
        """Kill its process group: CMD, if it runs, and what it has started and left there."""
        if self._pid:
            kill_group(self._pid)

    def _end(self, code: int) -> None:
        self.code = code
        self.has_ended = True
        self._on_end(self)

    def _copy(self, pipe: IO[bytes], target: int, name: str) -> None:
        keep = self._tail.add if name == "stderr" else _forget
        copy_stream(pipe.fileno(), target, prefix=self.prefix.encode(), on_chunk=keep)
        pipe.close()


def _forget(_chunk: bytes) -> None:
    """Keep nothing: only standard error has last words."""


def _cannot_start(
    error: OSError, command: Sequence[str], environment: Mapping[str, str]
) -> CannotStart:
    why = (error.strerror or str(error)).lower()
    if error.errno == errno.E2BIG:
        why += f": {_longest(command, environment)}"
    return CannotStart(
        cannot_start_code(error), f"elasticjob-agent: cannot run {command[0]!r}: {why}"
    )


def _longest(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return what is too long for the kernel: the longest argument or variable, and its bound."""
    arguments = {f"argument {number}": text for number, text in enumerate(command)}
    what = "environment"
    texts = environment
    own = "variable"
    if max(map(len, command)) > max(map(len, environment.values()), default=0):
        what = "command"
        texts = arguments
        own = "argument"
    name = max(texts, key=lambda each: len(texts[each]))
    size = sum(_bytes(text) for text in (*texts.values(), *(texts if own == "variable" else ())))
    bound = MAX_ARG_STRLEN - (_bytes(name) if own == "variable" else 0) - 1
    return (
        f"its {what} has {size} bytes, most of them {name} with {_bytes(texts[name]) - 1}; one {own} can have {bound} "
        "of them, and all together what `getconf ARG_MAX` tells"
    )


def _bytes(text: str) -> int:
    """Return what a text takes with its final zero byte."""
    return len(os.fsencode(text)) + 1


async def _kill_leftovers() -> None:
    """Kill what CMD has left running.

    It would hold ports and memory that the next world's process needs.
    """
    while kill_descendants():  # noqa: ASYNC110 (there is no event for the end of a grandchild)
        await asyncio.sleep(0.01)
