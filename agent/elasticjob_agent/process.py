"""Runs the training processes of one member: the training command once for each rank.

Each runs in a session of its own. The agent is the container's first process, so it also reaps
orphaned processes.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from elasticjob_api import drain_times, file_digests, names
from elasticjob_api.references import TooLongError
from elasticjob_processes.exec_child import dying_with_parent
from elasticjob_processes.killing import kill_descendants
from elasticjob_processes.reaper import ChildReaper

from elasticjob_agent.events import EndProcess
from elasticjob_agent.process_environment import render
from elasticjob_agent.standby.import_list import Memory
from elasticjob_agent.standby.pool import Shell, StandbyPool
from elasticjob_agent.start_failure import CannotStart, cannot_start
from elasticjob_agent.training_process import TrainingProcess
from elasticjob_agent.training_socket import TrainingSocket

_OUTPUT_SECONDS = 0.5


class ProcessSupervisor:
    """Starts the training command and reaps every child."""

    def __init__(
        self,
        command: Sequence[str],
        container: Mapping[str, str],
        memory: Callable[[], Memory] | None = None,
        *,
        launches: bool = False,
        within_limit: bool = False,
    ) -> None:
        """Begin to reap children; needs the running event loop.

        Keep processes in standby if `memory` measures the container's memory; with `within_limit`
        only in memory that is this container's. If the command `launches`, it is torchrun, whose
        processes are kept in standby, too.
        """
        self._command = list(command)
        self._container = container
        self._reaper = ChildReaper()
        self.standby: StandbyPool | None = None
        if memory is not None:
            shell = Shell(start=_popen, watch=self._reaper.watch, memory=memory)
            self.standby = StandbyPool(
                command, container, shell, launches=launches, within_limit=within_limit
            )

    async def import_first(self, imports: bytes, slots: int) -> None:
        """Import what the program imports in another member, for this number of processes."""
        if self.standby is not None and imports:
            piped = slots > 1 or names.ENV_RANK_PREFIX in self._container
            await self.standby.import_first(imports, slots, piped=piped)

    def start(
        self, variables: Sequence[Mapping[str, str]], *, first_rank: int = 0
    ) -> TrainingProcesses:
        """Start the command for adjacent ranks, each with its variables beside the container's.

        A process that cannot be started counts as ended with code 127 or 126, as in a shell.
        """
        started = TrainingProcesses(self.in_standby)
        with_prefix = len(variables) > 1 or names.ENV_RANK_PREFIX in self._container
        for slot, variables_of_rank in enumerate(variables):
            prefix = f"[{first_rank + slot}] " if with_prefix else ""
            self._start(started.add(prefix), slot, variables_of_rank)
        return started

    def in_standby(self) -> set[int]:
        """Return the processes in standby."""
        return self.standby.pids if self.standby else set()

    def _start(self, process: TrainingProcess, slot: int, variables: Mapping[str, str]) -> None:
        try:
            command, environment = render(self._command, self._container, variables)
        except TooLongError as error:
            process.not_started(
                CannotStart(126, f"elasticjob-agent: cannot run {self._command[0]!r}: {error}")
            )
            return
        digests = self._container.get(names.ENV_FILES_SHA256)
        changed = digests and file_digests.difference(digests, command)
        if changed:
            process.not_started(
                CannotStart(
                    126,
                    f"elasticjob-agent: not started: {changed}. Another user may have made or "
                    "replaced the ConfigMap of the job's files; submit the job again",
                )
            )
            return
        popen = None
        if self.standby is not None:
            with suppress(OSError):  # start_other says why
                popen = self.standby.start(
                    slot, command, environment, piped=bool(process.prefix), on_exit=process.ended
                )
        if popen is not None:
            process.started(popen)
        else:
            self.start_other(process, command, environment)

    def start_other(
        self, process: TrainingProcess, command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        """Start any command in a session of its own."""
        try:
            popen = _popen(command, environment, piped=bool(process.prefix))
        except OSError as error:
            process.not_started(cannot_start(error, command, environment))
        else:
            process.started(popen)
            self._reaper.watch(popen.pid, process.ended)


def _popen(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    piped: bool,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own; its standard output is a pipe or the agent's."""
    return subprocess.Popen(  # the reaper waits for it
        dying_with_parent([*command]),
        env=environment,
        stdout=subprocess.PIPE if piped else None,
        stderr=subprocess.PIPE,
        start_new_session=True,
        pass_fds=pass_fds,
    )


class TrainingProcesses:
    """The training processes of one member in one world, by rank."""

    def __init__(self, spared: Callable[[], set[int]] = set) -> None:
        """Begin without a process; `spared`: children of the agent that outlive the world."""
        self._spared = spared
        self._processes: list[TrainingProcess] = []
        self._failed: TrainingProcess | None = None
        self.failed_at: float | None = None
        """The time of the first failure, by the monotonic clock."""
        self._one_has_ended = asyncio.Event()

    def add(self, prefix: str) -> TrainingProcess:
        """Add a process that is about to be started."""
        self._processes.append(TrainingProcess(prefix, self._ended))
        return self._processes[-1]

    async def failure(self) -> int | None:
        """Wait for the first failing process and return its local rank; None if all succeed."""
        while self._failed is None and not self._all_have_ended:
            self._one_has_ended.clear()
            await self._one_has_ended.wait()
        return None if self._failed is None else self._processes.index(self._failed)

    async def wait(self) -> tuple[int, str]:
        """Wait until all have exited, with all their descendants.

        Returns the exit code as a shell reports it (128 + signal), and the last lines of standard
        error, of the first process that failed. If none failed, they are those of the lowest rank.
        """
        while not self._all_have_ended:
            self._one_has_ended.clear()
            await self._one_has_ended.wait()
        await _kill_leftovers(self._spared)
        for process in self._processes:
            await asyncio.to_thread(process.wait_for_output, _OUTPUT_SECONDS)
        return (self._failed or self._processes[0]).failure()

    def last_lines(self) -> list[str]:
        """Return the kept lines of standard error of the first process that failed, if any."""
        return self._failed.last_lines() if self._failed else []

    @property
    def _all_have_ended(self) -> bool:
        return all(process.has_ended for process in self._processes)

    def _ended(self, process: TrainingProcess) -> None:
        if process.code != 0 and self._failed is None:
            self._failed = process
            self.failed_at = time.monotonic()
        self._one_has_ended.set()

    def __len__(self) -> int:
        """Return the number of processes."""
        return len(self._processes)

    @property
    def pids(self) -> list[int]:
        """The processes by local rank; 0 for one that has ended or could not be started."""
        return [process.pid for process in self._processes]

    def signal(self, number: int) -> None:
        """Send a signal to each training process, not to its children."""
        for process in self._processes:
            process.signal(number)

    def terminate(self) -> None:
        """Send SIGTERM to the process group of each: a shell would not pass it on."""
        for process in self._processes:
            process.terminate()

    async def end(
        self,
        action: EndProcess,
        *,
        socket: TrainingSocket,
        leaves_by_itself: Callable[[], bool],
        sigterm_delay_seconds: float,
    ) -> None:
        """End all by a request, then SIGTERM, then SIGKILL; cancelled when all have exited.

        Processes that do not listen for stops get SIGTERM after the delay, or as late as possible
        if they notice by themselves that their host leaves, and exit.
        """
        if action.kill_after > 0:
            begun = time.monotonic()
            socket.request_stop()
            if not socket.listens_for_stop:
                # Meanwhile it may leave at its next commit, write a snapshot, or begin to listen.
                delay = sigterm_delay_seconds
                if action.by_node and leaves_by_itself():
                    delay = drain_times.own_end(action.terminate_after)
                await asyncio.sleep(min(delay, action.terminate_after))
            if socket.listens_for_stop:
                await asyncio.sleep(begun + action.terminate_after - time.monotonic())
            self.terminate()
            await asyncio.sleep(begun + action.kill_after - time.monotonic())
        self.kill()

    def kill(self) -> None:
        """Kill all descendants of the agent, in any process group or session.

        Those in standby stay for the next world.
        """
        for process in self._processes:
            process.signal(signal.SIGKILL)
        kill_descendants(self._spared())


async def _kill_leftovers(spared: Callable[[], set[int]]) -> None:
    """Kill the descendants that are left: the next processes need their ports and memory."""
    while kill_descendants(spared()):  # noqa: ASYNC110 (there is no event for the end of a grandchild)
        await asyncio.sleep(0.01)
