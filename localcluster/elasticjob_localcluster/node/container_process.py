"""Runs the process of one incarnation of a container, and writes its output to the log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from elasticjob_api.times import format_time
from elasticjob_processes.killing import kill, kill_group, shell_code

from elasticjob_localcluster.node.container_logs import ContainerLog, last_output
from elasticjob_localcluster.node.container_reaper import ContainerReaper
from elasticjob_localcluster.node.container_status import Terminated

_PIPE_SECONDS = 0.5
"""The time to read output after the process has ended, if another one has the pipe open."""
_MESSAGE_BYTES = 4096


class StartError(Exception):
    """The command cannot be run; the message is that of a container runtime."""


@dataclass(frozen=True)
class Command:
    """The command of a container: arguments, environment, working directory."""

    argv: list[str]
    variables: Mapping[str, str]
    directory: Path
    owner: str
    """The marker of the container that the process belongs to."""


@dataclass(frozen=True)
class Exit:
    """The end of a process; `code` is 128 + signal when a signal ended it."""

    code: int
    signal: int
    at: float


def find_executable(name: str, search: str, directory: Path) -> str:
    """Return the file that a command's first argument names.

    Raises StartError if there is none, or it must not be executed.
    """
    if "/" not in name:
        found = shutil.which(name, path=search)
        if found is None:
            raise StartError(f'exec: "{name}": executable file not found in $PATH')
        return found
    path = directory / name
    if not path.exists():
        raise StartError(f'exec: "{name}": stat {name}: no such file or directory')
    if path.is_dir() or not os.access(path, os.X_OK):
        raise StartError(f'exec: "{name}": permission denied')
    return str(path)


def spawn(
    command: Command, output: int, *, stdin: int = subprocess.DEVNULL, errors: int | None = None
) -> int:
    """Start a process in its own session with its output to a descriptor; return its id.

    `errors` is the descriptor of its standard error; by default that of its output. Raises
    StartError.
    """
    if not command.directory.is_dir():
        raise StartError(f"workingDir {command.directory}: no such directory on this machine")
    program = find_executable(command.argv[0], command.variables.get("PATH", ""), command.directory)
    try:
        process = subprocess.Popen(
            command.argv,
            executable=program,
            cwd=command.directory,
            env=dict(command.variables),
            stdin=stdin,
            stdout=output,
            stderr=output if errors is None else errors,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise StartError(f'exec: "{command.argv[0]}": {error}') from None
    process.returncode = 0  # the reaper waits for it, not this object
    return process.pid


class ContainerProcess:
    """A running container.

    `exit` is set when its process has ended, its tree is killed and its output is written.
    """

    def __init__(
        self,
        reaper: ContainerReaper,
        command: Command,
        log: ContainerLog,
        message_file: Path,
        on_exit: Callable[[], None],
    ) -> None:
        """Start it, or raise StartError; `on_exit` is called when `exit` has been set."""
        self.started_at = time.time()
        self.exit: Exit | None = None
        self.log = log
        self.command = command
        self.out_of_memory = False
        self._reaper = reaper
        self._message_file = message_file
        self._on_exit = on_exit
        self._ended: Exit | None = None
        self._kill_at: float | None = None
        self._killer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._pipe, write_end = os.pipe()
        message_file.write_bytes(b"")
        try:
            self.pid = spawn(command, write_end)
        except StartError:
            os.close(self._pipe)
            log.close()
            raise
        finally:
            os.close(write_end)
        os.set_blocking(self._pipe, False)
        reaper.watch(self.pid, self._on_process_end, owner=command.owner)
        self._open = True
        self._loop.add_reader(self._pipe, self._read)

    def stop(self, grace: float) -> None:
        """Send SIGTERM, and kill after `grace` seconds, which a later call can only shorten."""
        if self._ended:
            return
        at = self._loop.time() + grace
        if self._kill_at is None:
            kill(self.pid, signal.SIGTERM)
        elif at >= self._kill_at:
            return
        elif self._killer:
            self._killer.cancel()
        self._kill_at = at
        self._killer = self._loop.call_at(at, self.kill)

    def kill(self) -> None:
        """Kill the process and its group; its other descendants are killed when it has ended."""
        if not self._ended:
            kill_group(self.pid)

    def kill_for_memory(self) -> None:
        """Kill it because it is over its memory limit."""
        self.out_of_memory = True
        self.kill()

    def message(self, policy: str) -> str:
        """Return the termination message."""
        with contextlib.suppress(OSError):
            with self._message_file.open("rb") as file:
                text = file.read(_MESSAGE_BYTES).decode(errors="replace")
            if text:
                return text
        failed = self.exit is not None and self.exit.code != 0
        return last_output(self.log.path) if failed and policy == "FallbackToLogsOnError" else ""

    def terminated_state(self, message: str, container_id: str) -> Terminated:
        """Return the state of the container, whose process has ended."""
        exit_ = self.exit
        assert exit_ is not None
        reason = "Completed"
        if exit_.code != 0:
            reason = "OOMKilled" if self.out_of_memory else "Error"
        return Terminated(
            exit_code=exit_.code,
            reason=reason,
            message=message,
            signal=exit_.signal,
            started_at=format_time(self.started_at),
            finished_at=format_time(exit_.at),
            container_id=container_id,
        )

    def _on_process_end(self, code: int) -> None:
        self._ended = Exit(shell_code(code), signal=max(0, -code), at=time.time())
        if self._killer:
            self._killer.cancel()
        kill_group(self.pid)
        self._reaper.container_ended(self.command.owner)
        if self._open:
            self._loop.call_later(_PIPE_SECONDS, self._finish)
        else:
            self._finish()

    def _read(self) -> None:
        try:
            data = os.read(self._pipe, 1 << 16)
        except BlockingIOError:
            return
        if data:
            self.log.write(data)
            return
        self._close_pipe()
        if self._ended:
            self._finish()

    def _finish(self) -> None:
        if self.exit:
            return
        self._close_pipe()
        self.log.close()
        self.exit = self._ended
        self._on_exit()

    def _close_pipe(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
