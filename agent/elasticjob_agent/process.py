"""The training process: one CMD at a time, in a session of its own, with everything it starts.

The agent is the container's first process, so it also reaps orphaned processes. All children are reaped in one place,
on SIGCHLD, because of two calls of `waitpid` one would take the exit code that the other waits for.
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
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_READ_BYTES = 65536
_STDERR_SECONDS = 0.5
_MAX_ARG_STRLEN = 131_072
"""Bytes of one argument or variable, with its name, the equals sign and the final zero byte: a limit of Linux."""


def become_subreaper() -> None:
    """Make the kernel give orphaned descendants to this process as children, also when it is not process 1."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Make the kernel kill this process when the one that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class CannotStart(Exception):
    """No process can be started. `code`: the exit code of the container, as if it were CMD's.

    126 when another attempt cannot succeed; 71 when the node is short of memory or processes, which may be temporary.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ProcessSupervisor:
    """Starts CMD and reaps every child."""

    def __init__(self, command: Sequence[str]) -> None:
        """Remember the command; nothing is started."""
        self._command = list(command)
        self._current: TrainingProcess | None = None

    def watch_children(self) -> None:
        """Reap children from now on; needs the running event loop."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._reap_children)

    def start(self, environment: Mapping[str, str]) -> TrainingProcess:
        """Start CMD in an environment. A command that cannot be run ends with code 127 or 126, as in a shell.

        Raises:
            CannotStart: there is not even a process that could try.
        """
        arguments = [sys.executable, "-I", "-S", exec_child.__file__, str(os.getpid()), *self._command]
        try:
            popen = subprocess.Popen(  # reaped by _reap_children, which sets its return code
                arguments, env=environment, stderr=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise _cannot_start(error, self._command, environment) from error
        self._current = TrainingProcess(popen)
        return self._current

    def _reap_children(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._current is not None and pid == self._current.pid:
                self._current.ended(os.waitstatus_to_exitcode(status))


class TrainingProcess:
    """One run of CMD."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        """Take over a started process whose standard error is a pipe."""
        self.pid = popen.pid
        self._popen = popen
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tail = Tail()
        self._stderr_thread = threading.Thread(target=self._copy_stderr, name="stderr", daemon=True)
        self._stderr_thread.start()

    async def wait(self) -> tuple[int, str]:
        """Wait until CMD and all its descendants have exited.

        Returns its exit code as a shell reports it (128 + signal), and the last lines of its standard error.
        """
        code = await asyncio.shield(self._end)
        await _kill_leftovers()
        await asyncio.to_thread(self._stderr_thread.join, _STDERR_SECONDS)
        return (128 - code if code < 0 else code), self._tail.text()

    def ended(self, code: int) -> None:
        """Record the exit code, which was found when the process was reaped."""
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
        """Kill CMD and all descendants of the agent, in whatever process group or session they are."""
        if not self._end.done():
            os.kill(self.pid, signal.SIGKILL)
        _kill_descendants()

    def _copy_stderr(self) -> None:
        """Copy standard error to the agent's as it comes, keeping the last lines."""
        assert self._popen.stderr is not None
        source = self._popen.stderr.fileno()
        while chunk := os.read(source, _READ_BYTES):
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
            f"have {_MAX_ARG_STRLEN - len(name) - 2} of them, and all together what `getconf ARG_MAX` tells"
        )
    temporary = error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
    return CannotStart(os.EX_OSERR if temporary else 126, f"elasticjob-agent: cannot run {command[0]!r}: {why}")


def _write_all(target: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(target, data) :]
    except OSError:
        pass  # the agent's standard error is closed; the training goes on


def _kill_descendants() -> bool:
    killed = False
    for process in psutil.Process().children(recursive=True):
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                process.kill()
                killed = True
        except psutil.NoSuchProcess:
            continue
    return killed


async def _kill_leftovers() -> None:
    """Kill what CMD has left running: it would hold ports and memory that the next world's process needs."""
    while _kill_descendants():  # noqa: ASYNC110 (there is no event for the end of a grandchild)
        await asyncio.sleep(0.01)
