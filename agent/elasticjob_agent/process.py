"""Runs the training processes of one member: the training command once for each rank.

Each runs in a session of its own. The agent is the container's first process, so it also reaps
orphaned processes.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

from elasticjob_api import file_digests, names
from elasticjob_api.references import TooLongError
from elasticjob_processes.exec_child import dying_with_parent
from elasticjob_processes.killing import kill_descendants
from elasticjob_processes.reaper import ChildReaper

from elasticjob_agent.process_environment import render
from elasticjob_agent.start_failure import CannotStart, cannot_start
from elasticjob_agent.training_process import TrainingProcess

_OUTPUT_SECONDS = 0.5


class ProcessSupervisor:
    """Starts the training command and reaps every child."""

    def __init__(self, command: Sequence[str], container: Mapping[str, str]) -> None:
        """Begin to reap children; needs the running event loop."""
        self._command = list(command)
        self._container = container
        self._reaper = ChildReaper()

    def start(
        self, variables: Sequence[Mapping[str, str]], *, first_rank: int = 0
    ) -> TrainingProcesses:
        """Start the command for adjacent ranks, each with its variables beside the container's.

        A process that cannot be started counts as ended with code 127 or 126, as in a shell.
        """
        started = TrainingProcesses()
        with_prefix = len(variables) > 1 or names.ENV_RANK_PREFIX in self._container
        for rank, variables_of_rank in enumerate(variables, start=first_rank):
            prefix = f"[{rank}] " if with_prefix else ""
            self._start(started.add(prefix), variables_of_rank)
        return started

    def _start(self, process: TrainingProcess, variables: Mapping[str, str]) -> None:
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
        self.start_other(process, command, environment)

    def start_other(
        self, process: TrainingProcess, command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        """Start any command in a session of its own."""
        try:
            popen = subprocess.Popen(  # the reaper waits for it
                dying_with_parent([*command]),
                env=environment,
                stdout=subprocess.PIPE if process.prefix else None,  # None: the agent's own
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            process.not_started(cannot_start(error, command, environment))
        else:
            process.started(popen)
            self._reaper.watch(popen.pid, process.ended)


class TrainingProcesses:
    """The training processes of one member in one world, by rank."""

    def __init__(self) -> None:
        self._processes: list[TrainingProcess] = []
        self._failed: TrainingProcess | None = None
        self.failed_at: float | None = None
        """The time of the first failure, by the monotonic clock."""
        self._one_has_ended = asyncio.Event()

    def add(self, prefix: str) -> TrainingProcess:
        """Add a process that is about to be started."""
        self._processes.append(TrainingProcess(prefix, self._ended))
        return self._processes[-1]

    async def failure(self) -> bool:
        """Wait until one has failed or all have exited with 0; return whether one has failed."""
        while self._failed is None and not self._all_have_ended:
            self._one_has_ended.clear()
            await self._one_has_ended.wait()
        return self._failed is not None

    async def wait(self) -> tuple[int, str]:
        """Wait until all have exited, with all their descendants.

        Returns the exit code as a shell reports it (128 + signal), and the last lines of standard
        error, of the first process that failed. If none failed, they are those of the lowest rank.
        """
        while not self._all_have_ended:
            self._one_has_ended.clear()
            await self._one_has_ended.wait()
        await _kill_leftovers()
        for process in self._processes:
            await asyncio.to_thread(process.wait_for_output, _OUTPUT_SECONDS)
        return (self._failed or self._processes[0]).failure()

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

    def signal(self, number: int) -> None:
        """Send a signal to each training process, not to its children."""
        for process in self._processes:
            process.signal(number)

    def terminate(self) -> None:
        """Send SIGTERM to the process group of each: a shell would not pass it on."""
        for process in self._processes:
            process.terminate()

    def kill(self) -> None:
        """Kill all descendants of the agent, in any process group or session."""
        for process in self._processes:
            process.signal(signal.SIGKILL)
        kill_descendants()


async def _kill_leftovers() -> None:
    """Kill the descendants that are left: the next processes need their ports and memory."""
    while kill_descendants():  # noqa: ASYNC110 (there is no event for the end of a grandchild)
        await asyncio.sleep(0.01)
