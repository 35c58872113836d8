"""Starts operators and masters from a warm parent, a process that has imported both programs.

Importing takes an operator 1.4 s of CPU and a master 0.9 s, of which tests start hundreds. The warm
parent forks; the child gets its own arguments, environment and output, runs `main()`, and ends as
an interpreter ends. The agent is not started so: it reads its initial environment from /proc and
makes itself not dumpable. End-to-end tests start each program by its command.

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
from collections.abc import Callable
from functools import cache
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
    program: str, *arguments: str, output: IO[bytes], env: dict[str, str]
) -> WarmProcess:
    """Start `elasticjob-operator` or `elasticjob-master`; write both of its outputs to a file."""
    return _warm_parent().start([program, *arguments], output.fileno(), env)


class _WarmParent:
    """This process's side of the connection to its warm parent."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._socket, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )

    def start(self, command: list[str], output: int, env: dict[str, str]) -> WarmProcess:
        request = json.dumps({"command": command, "env": env, "cwd": os.getcwd()}).encode()  # noqa: PTH109
        descriptors = array.array("i", [output])
        self._socket.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        return WarmProcess(self, int(self._socket.recv(64)))

    def collect(self, pid: int) -> int:
        """Return the exit code of a child that has ended."""
        self._socket.send(json.dumps({"collect": pid}).encode())
        return os.waitstatus_to_exitcode(int(self._socket.recv(64)))

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
        data, ancillary, _, _ = connection.recvmsg(_MOST_BYTES, socket.CMSG_SPACE(4))
        if not data:
            return None
        request = json.loads(data)
        if "collect" in request:
            _, status = os.waitpid(request["collect"], 0)
            connection.send(str(status).encode())
            continue
        descriptors = array.array("i")
        descriptors.frombytes(ancillary[0][2])
        if pid := os.fork():
            os.close(descriptors[0])
            connection.send(str(pid).encode())
            continue
        connection.close()
        _become(request, descriptors[0])
        return programs[request["command"][0]]


def _programs() -> dict[str, Callable[[], int | None]]:
    from elasticjob_master import main as master
    from elasticjob_operator import main as operator

    # A collection in a child would copy every page that holds an object of the parent.
    gc.freeze()
    return {"elasticjob-operator": operator.main, "elasticjob-master": master.main}


def _become(request: dict[str, Any], output: int) -> None:
    """Give this process the arguments, environment, folder and outputs of the program."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
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
