"""The training process: one CMD at a time, in a session of its own, with everything it starts.

The agent is the container's first process, so it also collects the processes that others leave behind. All children
are collected in one place, on SIGCHLD, because two collectors would take each other's exit codes.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence

import psutil

from elasticjob_agent import exec_child

TAIL_LINES = 20
TAIL_BYTES = 2048
_PR_SET_CHILD_SUBREAPER = 36
_READ_SIZE = 65536
_LAST_WORDS_SECONDS = 0.5
_MOST_BYTES = 131_072
"""Of one argument or variable, its name, the equals sign and its end included: Linux' MAX_ARG_STRLEN."""


def collect_orphans() -> None:
    """Make the kernel hand this process what its descendants leave behind, also when it is not process 1."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class CannotStart(Exception):
    """No process can be started. `code`: how the container shall end, as if CMD had.

    126 when trying again is of no use; 71 when the node is short of memory or processes, which may pass.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Processes:
    """Starts CMD and collects every child."""

    def __init__(self, command: Sequence[str]) -> None:
        """Remember the command; nothing is started."""
        self._command = list(command)
        self._present: Process | None = None

    def watch(self) -> None:
        """Collect children from now on; needs the running event loop."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._collect)

    def start(self, environment: Mapping[str, str]) -> Process:
        """Start CMD in an environment. A command that cannot be run ends with code 127 or 126, as in a shell.

        Raises:
            CannotStart: there is not even a process that could try.
        """
        arguments = [sys.executable, "-I", "-S", exec_child.__file__, str(os.getpid()), *self._command]
        try:
            popen = subprocess.Popen(  # its end is collected by _collect, which tells it the code
                arguments, env=environment, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise _cannot_start(error, self._command, environment) from error
        self._present = Process(popen)
        return self._present

    def _collect(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._present is not None and pid == self._present.pid:
                self._present.ended(os.waitstatus_to_exitcode(status))


class Process:
    """One run of CMD."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        """Take over a started process whose standard error is a pipe."""
        self.pid = popen.pid
        self._popen = popen
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tail = Tail()
        self._words = threading.Thread(target=self._pass_words, name="stderr", daemon=True)
        self._words.start()

    async def wait(self) -> tuple[int, str]:
        """Wait until CMD and all it started are gone; returns its exit code as a shell tells it, and its last words."""
        code = await asyncio.shield(self._end)
        await _kill_leftovers()
        await asyncio.to_thread(self._words.join, _LAST_WORDS_SECONDS)
        return (128 - code if code < 0 else code), self._tail.text()

    def ended(self, code: int) -> None:
        """Take note of the end, told by who collected it."""
        self._popen.returncode = code
        self._end.set_result(code)

    def signal(self, number: int) -> None:
        """Send a signal to CMD alone."""
        if not self._end.done():
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM to CMD and what it has started: a shell in between would not pass it on."""
        if not self._end.done():
            os.killpg(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """Kill CMD and everything below the agent, in whatever group or session it is."""
        if not self._end.done():
            os.kill(self.pid, signal.SIGKILL)
        _kill_descendants()

    def _pass_words(self) -> None:
        """Pass standard error through as it comes, keeping the last lines."""
        assert self._popen.stderr is not None
        source = self._popen.stderr.fileno()
        while chunk := os.read(source, _READ_SIZE):
            self._tail.add(chunk)
            _write_all(sys.__stderr__.fileno() if sys.__stderr__ else 2, chunk)
        self._popen.stderr.close()


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


def _cannot_start(error: OSError, command: Sequence[str], environment: Mapping[str, str]) -> CannotStart:
    why = (error.strerror or str(error)).lower()
    if error.errno == errno.E2BIG:
        name, value = max(environment.items(), key=lambda item: len(item[1]))
        size = sum(len(text.encode()) + 1 for item in environment.items() for text in item)
        why += (
            f": its environment has {size} bytes, most of them {name} with {len(value.encode())}; one variable can "
            f"have {_MOST_BYTES - len(name) - 2} of them, and all together what `getconf ARG_MAX` tells"
        )
    passes = error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
    return CannotStart(os.EX_OSERR if passes else 126, f"elasticjob-agent: cannot run {command[0]!r}: {why}")


def _write_all(target: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(target, data) :]
    except OSError:
        pass  # nobody reads our standard error any more; the training goes on


def _kill_descendants() -> bool:
    found = False
    for process in psutil.Process().children(recursive=True):
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                process.kill()
                found = True
        except psutil.NoSuchProcess:
            continue
    return found


async def _kill_leftovers() -> None:
    """Kill what CMD has left running: it would hold ports and memory of the next world's process."""
    while _kill_descendants():  # noqa: ASYNC110 (the kernel tells nobody of grandchildren)
        await asyncio.sleep(0.01)
