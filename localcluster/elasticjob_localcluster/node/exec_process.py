"""Runs a user's command in a container, beside its process and with the same environment."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import Sequence
from dataclasses import dataclass, replace

from elasticjob_processes.killing import kill_group, shell_code

from elasticjob_localcluster.node.container_command import with_installed_programs
from elasticjob_localcluster.node.container_process import (
    Command,
    StartError,
    find_executable,
    spawn,
)
from elasticjob_localcluster.node.container_reaper import ContainerReaper

_BUFFERED_BYTES = 1 << 16
_TERMINAL = -1
# Only the leader of a session can take a terminal, so the process does it before its execve.
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.argv[1], sys.argv[2:])"
)


@dataclass(frozen=True)
class Streams:
    """The streams that the user requests, and whether they are a terminal."""

    stdin: bool
    stdout: bool
    stderr: bool
    terminal: bool


@dataclass(frozen=True)
class ExecProcess:
    """A running command. It ends with its container at the latest.

    Attributes:
        pid: the process id of the command, which leads its own session.
        code: its exit code, when it has ended; 128 + signal after a signal.
        outputs: its output streams by descriptor; with a terminal there is only 1.
        stdin: its input stream; None if the user requested none.
    """

    pid: int
    code: asyncio.Future[int]
    outputs: dict[int, asyncio.StreamReader]
    stdin: asyncio.StreamWriter | None
    _transports: tuple[asyncio.BaseTransport, ...]
    _terminal: int | None

    def end_input(self) -> None:
        """Close its input."""
        if self.stdin is not None and self._terminal is not None:
            self.stdin.write(b"\x04")
        elif self.stdin is not None:
            self.stdin.close()

    def resize(self, width: int, height: int) -> None:
        """Set the size of its terminal, in characters; each is 1 to 65535."""
        if self._terminal is not None:
            fcntl.ioctl(
                self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0)
            )

    def close(self) -> None:
        """Kill it and its process group, and close its streams."""
        if not self.code.done():
            kill_group(self.pid)
        for transport in self._transports:
            transport.close()
        if self._terminal is not None:
            os.close(self._terminal)


async def start(
    reaper: ContainerReaper, container: Command, argv: Sequence[str], streams: Streams
) -> ExecProcess:
    """Start a user's command in a container, with the requested streams; raises StartError.

    The reaper waits for it, and kills it when the container ends.
    """
    command = replace(container, argv=with_installed_programs(argv))
    ours, theirs = _terminal(streams) if streams.terminal else _pipes(streams)
    try:
        if streams.terminal:
            program = find_executable(
                command.argv[0], command.variables.get("PATH", ""), command.directory
            )
            command = replace(
                command, argv=[sys.executable, "-ISc", _TAKE_TERMINAL, program, *command.argv]
            )
        pid = spawn(command, theirs[1], stdin=theirs[0], errors=theirs[2])
    except StartError:
        _close(ours)
        raise
    finally:
        _close(theirs)
    code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    reaper.watch(pid, lambda result: _set_code(code, result), guest_of=container.owner)
    outputs = {number: await _reader(ours[number]) for number in (1, 2) if number in ours}
    stdin = await _writer(ours[0]) if 0 in ours else None
    transports = tuple(transport for _, transport in outputs.values())
    if stdin is not None:
        transports = (*transports, stdin.transport)
    return ExecProcess(
        pid,
        code,
        {number: reader for number, (reader, _) in outputs.items()},
        stdin,
        transports,
        ours.get(_TERMINAL),
    )


def _pipes(streams: Streams) -> tuple[dict[int, int], dict[int, int]]:
    """Return the node's ends and the command's ends of pipes, by the command's descriptor."""
    ours = {}
    theirs = {}
    for number, wanted in enumerate((streams.stdin, streams.stdout, streams.stderr)):
        if not wanted:
            theirs[number] = os.open(os.devnull, os.O_RDWR)
        elif number:
            ours[number], theirs[number] = os.pipe()
        else:
            theirs[number], ours[number] = os.pipe()
    return ours, theirs


def _terminal(streams: Streams) -> tuple[dict[int, int], dict[int, int]]:
    """Return the same for a terminal; `_TERMINAL` is the node's end that sets its size."""
    ours, theirs = pty.openpty()
    ends = {_TERMINAL: ours, 1: os.dup(ours)}
    if streams.stdin:
        ends[0] = os.dup(ours)
    return ends, {0: theirs, 1: theirs, 2: theirs}


def _close(descriptors: dict[int, int]) -> None:
    for descriptor in set(descriptors.values()):
        os.close(descriptor)


def _set_code(future: asyncio.Future[int], code: int) -> None:
    if not future.done():
        future.set_result(shell_code(code))


async def _reader(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    reader = asyncio.StreamReader(limit=_BUFFERED_BYTES)
    file = os.fdopen(descriptor, "rb", buffering=0)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    return reader, transport


async def _writer(descriptor: int) -> asyncio.StreamWriter:
    file = os.fdopen(descriptor, "wb", buffering=0)
    loop = asyncio.get_running_loop()
    nothing = asyncio.StreamReader()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(nothing), file
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)
