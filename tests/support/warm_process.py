"""Starts operators, masters and commands of `elasticjob` from a parent that has imported them.

Importing takes an operator 1.4 s of CPU, a master 0.9 s and a command 0.6 s, of which tests start
hundreds. The warm parent forks; the child gets its own arguments, environment and streams, runs
`main()`, and ends as an interpreter ends. The agent is not started so: it reads its initial
environment from /proc and makes itself not dumpable. On the embedded cluster the node starts each
program by its command.

A `WarmProcess` has the methods of `asyncio.subprocess.Process` that tests use. The parent collects
the exit status only when it is asked for. So until then the process id cannot be used again.
"""

from __future__ import annotations

import array
import asyncio
import atexit
import gc
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any

_MOST_BYTES = 1 << 20
"""Size of the largest request: a process's arguments and environment."""


class WarmProcess:
    """A child of the warm parent that runs a program.

    Attributes:
        pid: the process id, which is valid until `returncode` is not None.
    """

    def __init__(self, parent: _WarmParent, pid: int) -> None:
        self.pid = pid
        self._parent = parent
        self._pidfd: int | None = os.pidfd_open(pid)
        self._status = 0

    @property
    def returncode(self) -> int | None:
        """Return the exit code, the negative number of a signal, or None while it runs."""
        if self._pidfd is None:
            return self._status
        ready, _, _ = select.select([self._pidfd], [], [], 0)
        if not ready:
            return None
        self._status = self._parent.collect(self.pid)
        os.close(self._pidfd)
        self._pidfd = None
        return self._status

    async def wait(self) -> int:
        """Wait until the process has ended; return its exit code."""
        if (code := self.returncode) is not None:
            return code
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        descriptor = self._pidfd
        assert descriptor is not None
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
        code = self.returncode
        assert code is not None
        return code

    def join(self, seconds: float = 30) -> int:
        """Block until the process has ended; return its exit code.

        Raises:
            TimeoutError: if it still runs after this time.
        """
        if self._pidfd is not None:
            select.select([self._pidfd], [], [], seconds)
        if (code := self.returncode) is None:
            raise TimeoutError(f"process {self.pid} runs for more than {seconds} s")
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def start_warm(
    program: str,
    *arguments: str,
    output: IO[bytes],
    env: dict[str, str],
    errors: IO[bytes] | None = None,
    stdin: IO[bytes] | None = None,
    folder: Path | None = None,
) -> WarmProcess:
    """Start `elasticjob-operator`, `elasticjob-master` or `elasticjob`.

    Args:
        program: its name.
        output: the file of its standard output.
        env: its environment.
        errors: the file of its standard error; the one of its output if not given.
        stdin: the file of its standard input; the one of this process if not given.
        folder: its working directory; this process's if not given.
    """
    streams = [stdin.fileno() if stdin else 0, output.fileno(), (errors or output).fileno()]
    command = [program, *arguments]
    request = {"command": command, "env": env, "folder": str(folder or Path.cwd())}
    return _warm_parent().start(request, streams)


def run_warm(
    program: str,
    *arguments: str,
    stdin: str | None = None,
    folder: Path | None = None,
    seconds: float = 100,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, as `subprocess.run` does; its output goes to files."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        given.write((stdin or "").encode())
        given.seek(0)
        process = start_warm(
            program,
            *arguments,
            output=output,
            errors=errors,
            stdin=given,
            folder=folder,
            env=dict(os.environ),
        )
        try:
            code = process.join(seconds)
        finally:
            process.kill()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(
            [program, *arguments], code, output.read().decode(), errors.read().decode()
        )


class _WarmParent:
    """This process's side of the connection to its warm parent."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._socket, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
        self._one_at_a_time = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )

    def start(self, request: dict[str, Any], streams: list[int]) -> WarmProcess:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))
        return WarmProcess(self, self._ask(request, [rights]))

    def collect(self, pid: int) -> int:
        """Return the exit code of a child that has ended."""
        return os.waitstatus_to_exitcode(self._ask({"collect": pid}, []))

    def _ask(self, request: dict[str, Any], rights: list[Any]) -> int:
        with self._one_at_a_time:
            self._socket.sendmsg([json.dumps(request).encode()], rights)
            return int(self._socket.recv(64))

    def end(self) -> None:
        self._socket.close()
        self._process.wait(10)


@cache
def _warm_parent() -> _WarmParent:
    """Start this process's warm parent, which ends with it."""
    parent = _WarmParent()
    atexit.register(parent.end)
    return parent


def _serve(connection: socket.socket) -> Callable[[], int | None] | None:
    """Serve requests until the other end is closed; in a child return the program to run."""
    programs = _programs()
    while True:
        data, ancillary, _, _ = connection.recvmsg(_MOST_BYTES, socket.CMSG_SPACE(3 * 4))
        if not data:
            return None
        request = json.loads(data)
        if "collect" in request:
            _, status = os.waitpid(request["collect"], 0)
            connection.send(str(status).encode())
            continue
        streams = array.array("i")
        streams.frombytes(ancillary[0][2])
        if pid := os.fork():
            for stream in streams:
                os.close(stream)
            connection.send(str(pid).encode())
            continue
        connection.close()
        _become(request, list(streams))
        return programs[request["command"][0]]


def _programs() -> dict[str, Callable[[], int | None]]:
    from elasticjob_cli import main as command
    from elasticjob_master import main as master
    from elasticjob_operator import main as operator

    for module in {place.partition(":")[0] for place, _ in command.COMMANDS.values()}:
        import_module(f"elasticjob_cli.{module}")
    # A collection in a child would copy every page that holds an object of the parent.
    gc.freeze()
    return {
        "elasticjob-operator": operator.main,
        "elasticjob-master": master.main,
        "elasticjob": command.main,
    }


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """Give this process the arguments, environment, folder and streams of the program."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["env"])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.argv = request["command"]
    random.seed()


def main() -> None:
    """Serve as a warm parent on the socket that the argument names."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends its children, and pytest ends it
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
    if run := _serve(connection):
        sys.exit(run())


if __name__ == "__main__":
    main()
